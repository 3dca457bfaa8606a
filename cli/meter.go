package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// metered is a reader that shows on a progress line how much it has read.
type metered struct {
	io.Reader
	bar   *progress
	name  string
	n     int64
	total int64
}

func meter(r io.Reader, bar *progress, name string, total int64) io.Reader {
	return &metered{Reader: r, bar: bar, name: name, total: total}
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.n += int64(n)
	m.bar.bytes(m.name, m.n, m.total)
	return n, err
}

// reason is the cause of a file system error without the path, which the surrounding sentence
// already contains.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// warn prints a problem that does not stop the work.
func (a *app) warn(format string, args ...any) {
	fmt.Fprintf(a.stderr, "bothy: "+format+"\n", args...)
}
