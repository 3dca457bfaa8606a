package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a waiting build checks whether the lock is free. The kernel's own wait
// cannot be cancelled when the caller leaves.
const lockPoll = 200 * time.Millisecond

// tryLock is like lock, but does not wait.
func (l *Library) tryLock(name string) (unlock func(), free bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	unlock, err = l.lock(ctx, name, cancel)
	cancel()
	if errors.Is(err, context.Canceled) {
		return nil, false, nil
	}
	return unlock, err == nil, err
}

// lock takes the lock of one name against this and other processes, and calls waiting once if
// it is held. The lock file is not deleted: otherwise two processes could hold locks on two
// files with the same name.
func (l *Library) lock(ctx context.Context, name string, waiting func()) (unlock func(), err error) {
	dir := filepath.Join(l.dir, ".locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock template %s: %w", name, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, folderOf(name)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock template %s: %w", name, err)
	}
	if err := flock(ctx, f, waiting); err != nil {
		f.Close()
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, fmt.Errorf("lock template %s: %w", name, err)
	}
	return func() { f.Close() }, nil
}

// flock locks a file until it is closed, and calls waiting once if it is locked. If ctx ends
// before, the error is that of ctx.
func flock(ctx context.Context, f *os.File, waiting func()) error {
	for first := true; ; first = false {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}
