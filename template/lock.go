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
	for first := true; ; first = false {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock template %s: %w", name, err)
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}
