package gvisor

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"sort"

	"github.com/bothy-dev/bothy/engine/gvisor/driver"
)

// image is the files of a checkpoint that is being written.
type image struct {
	files []*os.File // in the sentry's order
	pages *os.File   // the last of them
	// ahead is how many bytes of pages were written ahead, and mark is what each of those pages
	// begins with.
	ahead int64
	mark  []byte
}

func (i *image) create(dir string) error {
	for _, name := range driver.ImageFiles {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			i.close()
			return err
		}
		i.files, i.pages = append(i.files, f), f
	}
	return nil
}

func (i *image) close() {
	for _, f := range i.files {
		f.Close()
	}
}

const (
	pageSize = 4096
	// worthAhead is the amount of memory in bytes from which writing ahead pays off.
	worthAhead = 64 << 20
	aheadStep  = 1 << 20
)

// writeAhead writes the pages file once while the machine is still running, with as
// many bytes as its memory has. Writing a page of a file for the first time takes
// almost twice as long as writing it again, because it must be allocated in memory and
// on disk; the content does not matter for that. If the disk is full, the later write
// reports it.
func (i *image) writeAhead(memory int64) {
	if memory < worthAhead {
		return
	}
	i.mark = make([]byte, 32)
	rand.Read(i.mark)
	step := bytes.Repeat(append(bytes.Clone(i.mark), make([]byte, pageSize-len(i.mark))...), aheadStep/pageSize)
	for i.ahead+aheadStep <= memory {
		if _, err := i.pages.WriteAt(step, i.ahead); err != nil {
			i.ahead = 0
			_ = i.pages.Truncate(0)
			return
		}
		i.ahead += aheadStep
	}
}

// cut truncates what was written ahead and not overwritten: the pages that still have the
// mark, which no other process has seen. They are at the end, because the sentry writes
// sequentially.
func (i *image) cut() error {
	if i.ahead == 0 {
		return nil
	}
	var failed error
	pages := sort.Search(int(i.ahead/pageSize), func(n int) bool {
		b := make([]byte, len(i.mark))
		if _, err := i.pages.ReadAt(b, int64(n)*pageSize); err != nil {
			failed = errors.Join(failed, err)
		}
		return bytes.Equal(b, i.mark)
	})
	if int64(pages)*pageSize == i.ahead {
		return failed
	}
	return errors.Join(failed, i.pages.Truncate(int64(pages)*pageSize))
}
