// Package uid gives every machine its own user id on the host, so that a machine that broke out of
// its kernel shares its id with no other: it can neither signal nor trace another, nor use up what
// the host's kernel counts per user. Engines use it.
//
// An allocated id is a symbolic link in a folder that all servers on the host share. Its name is
// the id and it points to the machine's folder. An id whose folder is gone is free: a machine that
// outlives its server keeps its id, and no id is leaked with a server.
package uid

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
)

// Dir is the folder of this host's allocated ids. It need not survive a reboot.
const Dir = "/run/bothy/uids"

// Pool allocates ids.
type Pool struct {
	dir string
	ids Range

	mu   sync.Mutex
	next int
}

// Open returns the pool of a range, or of the default one if it is nil. It frees the ids of
// machines that are gone.
func Open(r Range) (*Pool, error) {
	if r == (Range{}) {
		var err error
		if r, err = defaultRange(accounts); err != nil {
			return nil, err
		}
	} else if err := r.check(accounts); err != nil {
		return nil, err
	}
	return open(Dir, r)
}

// Default returns the pool of the default range.
var Default = sync.OnceValues(func() (*Pool, error) { return Open(Range{}) })

func open(dir string, r Range) (*Pool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of user ids in use: %w", err)
	}
	// Start at a random id, so that an id is not soon reused.
	p := &Pool{dir: dir, ids: r, next: r.First + rand.IntN(r.size())}
	return p, p.locked(p.forget)
}

// Range returns the ids that the pool allocates.
func (p *Pool) Range() Range { return p.ids }

// Take allocates an id to the machine in a folder, which exists. No other machine gets it while
// the folder exists, or until Release.
func (p *Pool) Take(folder string) (id int, err error) {
	folder, err = filepath.Abs(folder)
	if err != nil {
		return 0, err
	}
	err = p.locked(func() error {
		for range p.ids.size() {
			id = p.next
			if p.next++; p.next > p.ids.Last {
				p.next = p.ids.First
			}
			taken, err := p.take(id, folder)
			if err != nil || taken {
				return err
			}
		}
		return bothy.Errorf(bothy.CodeCapacity, "all %d user ids of the range %s are in use", p.ids.size(), p.ids).
			WithHint("Give engine.uids a larger range.")
	})
	return id, err
}

// take reports false if the id is taken.
func (p *Pool) take(id int, folder string) (bool, error) {
	link := p.link(id)
	err := os.Symlink(folder, link)
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	if !isDangling(link) {
		return false, nil
	}
	return true, errors.Join(os.Remove(link), os.Symlink(folder, link))
}

// Release frees an id when nothing runs under it any more. If the id has since been allocated to
// another machine, it stays allocated.
func (p *Pool) Release(id int, folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	return p.locked(func() error {
		if to, err := os.Readlink(p.link(id)); err != nil || to != folder {
			return nil
		}
		return os.Remove(p.link(id))
	})
}

func (p *Pool) link(id int) string { return filepath.Join(p.dir, strconv.Itoa(id)) }

// isDangling reports whether a link's target no longer exists.
func isDangling(link string) bool {
	_, err := os.Stat(link)
	return errors.Is(err, fs.ErrNotExist)
}

// forget removes the links of machines that are gone, including those of other servers.
func (p *Pool) forget() error {
	links, err := os.ReadDir(p.dir)
	if err != nil {
		return err
	}
	for _, l := range links {
		if path := filepath.Join(p.dir, l.Name()); l.Type() == fs.ModeSymlink && isDangling(path) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// locked calls f while no other server allocates ids.
func (p *Pool) locked(f func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	lock, err := os.OpenFile(filepath.Join(p.dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	for {
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != unix.EINTR {
			if err != nil {
				return fmt.Errorf("lock the user ids in use: %w", err)
			}
			return f()
		}
	}
}
