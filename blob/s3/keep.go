package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

const (
	// uploadsAtOnce is the number of trees uploaded at once. Their chunks share the bucket's
	// slots.
	uploadsAtOnce = 2
	// maxBackoff is the longest pause between two attempts.
	maxBackoff = 30 * time.Second
)

// upload is a tree that is to be uploaded to the bucket.
type upload struct {
	ctx      context.Context
	cancel   context.CancelFunc
	done     chan struct{} // closed when it is uploaded or no longer wanted
	idle     chan struct{} // capacity 1; held by the worker that uploads it
	failures int
	next     time.Time
	asked    time.Time
}

// end cancels the upload, waits until no worker is busy with it, and wakes its waiters.
func (u *upload) end() {
	u.cancel()
	u.idle <- struct{}{}
	close(u.done)
}

// Keep implements blob.Remote.
func (s *Store) Keep(name string) {
	if s.Kept(name) {
		if s.o.OnKept != nil {
			s.work.Go(func() { s.o.OnKept(name) })
		}
		return
	}
	s.mu.Lock()
	if s.uploads[name] == nil && s.ctx.Err() == nil {
		u := &upload{done: make(chan struct{}), idle: make(chan struct{}, 1), asked: time.Now()}
		u.ctx, u.cancel = context.WithCancel(s.ctx)
		s.uploads[name] = u
	}
	s.mu.Unlock()
	s.signal()
}

// Kept implements blob.Remote.
func (s *Store) Kept(name string) bool { return s.has(indexes, name) }

// WaitKept implements blob.Remote.
func (s *Store) WaitKept(ctx context.Context, name string) error {
	s.mu.Lock()
	u := s.uploads[name]
	s.mu.Unlock()
	if u != nil {
		select {
		case <-u.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
	if !s.Kept(name) {
		return fmt.Errorf("%s is not being uploaded to the object storage: %w", name, fs.ErrNotExist)
	}
	return nil
}

// Pending is the number of trees waiting to be uploaded.
func (s *Store) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// Retry ends the back-off of waiting uploads.
func (s *Store) Retry() {
	s.mu.Lock()
	s.pause, s.failures = time.Time{}, 0
	for _, u := range s.uploads {
		u.next = time.Time{}
	}
	s.mu.Unlock()
	s.signal()
}

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// uploader uploads trees one by one until the store is closed.
func (s *Store) uploader() {
	for {
		name, u, wait := s.nextUpload()
		if u == nil {
			timer := time.NewTimer(wait)
			select {
			case <-s.ctx.Done():
				return
			case <-s.wake:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		s.signal() // let the other uploader look for more
		err := s.carry(u, name)
		s.carried(name, u, err)
		if s.ctx.Err() != nil {
			return
		}
	}
}

// nextUpload takes the next tree to upload. If there is none, it returns how long to wait.
func (s *Store) nextUpload() (name string, u *upload, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if wait = s.pause.Sub(now); wait > 0 {
		return "", nil, wait
	}
	wait = maxBackoff
	for n, other := range s.uploads {
		if left := other.next.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		if len(other.idle) == 0 && (u == nil || other.asked.Before(u.asked)) {
			name, u = n, other
		}
	}
	if u != nil {
		u.idle <- struct{}{}
	}
	return name, u, wait
}

// errSpoiled means that the files of a tree are damaged on this host.
var errSpoiled = errors.New("the files on this host are damaged")

// carry uploads a tree and stores its index.
func (s *Store) carry(u *upload, name string) error {
	if err := s.bucket.Usable(); err != nil {
		return err
	}
	dir, release, err := s.local.Open(u.ctx, name)
	if err != nil {
		return err
	}
	defer release()
	if s.o.Verify != nil {
		if err := s.o.Verify(u.ctx, name, dir); bothy.ErrorCode(err) == bothy.CodeSnapshotDamaged {
			return fmt.Errorf("%w: %w", errSpoiled, err)
		} else if err != nil {
			return err
		}
	}
	if s.o.Before != nil {
		if err := s.o.Before(u.ctx, dir); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot upload what the tree needs: %v", err) // the tree itself is here
		} else if err != nil {
			return fmt.Errorf("cannot upload what the tree needs: %w", err)
		}
	}
	i, text, err := s.bucket.upload(u.ctx, s.o.Kind, name, dir, false)
	if err != nil {
		return err
	}
	if err := failpoint.Hit("s3.uploaded"); err != nil {
		return err
	}
	s.counts.uploads.Add(1)
	s.counts.uploadBytes.Add(i.transferred())
	if err := s.remember(indexes, name, text); err != nil {
		return err
	}
	s.used(name)
	return nil
}

// carried handles the outcome of an upload: it wakes the waiters or schedules another attempt.
func (s *Store) carried(name string, u *upload, err error) {
	s.mu.Lock()
	<-u.idle
	current := s.uploads[name] == u
	missing, spoiled := errors.Is(err, fs.ErrNotExist), errors.Is(err, errSpoiled)
	switch {
	case !current: // removed meanwhile
	case err == nil || missing || spoiled:
		delete(s.uploads, name)
		s.failures = 0
		u.cancel()
		close(u.done)
	default:
		s.counts.uploadFailures.Add(1)
		u.failures++
		u.next = time.Now().Add(s.o.backoff(u.failures))
		if errors.Is(err, ErrUnavailable) {
			s.failures++
			s.pause = time.Now().Add(s.o.backoff(s.failures))
		}
	}
	first := u.failures == 1
	s.mu.Unlock()
	switch {
	case !current || s.ctx.Err() != nil:
	case missing:
		s.log.Error("cannot upload to the object storage: the files are not on this host", "kind", s.o.Kind, "name", name, "error", err)
	case spoiled:
		s.log.Error("not uploaded to the object storage, because it is damaged: delete it, and restore the sandbox from an earlier snapshot", "kind", s.o.Kind, "name", name, "error", err)
	case err != nil:
		level := s.log.Debug
		if first {
			level = s.log.Warn
		}
		level("cannot upload to the object storage; trying again", "kind", s.o.Kind, "name", name, "error", err)
	default:
		if s.o.OnKept != nil {
			s.o.OnKept(name)
		}
		s.evict()
	}
}

// backoff returns how long to wait after the given number of consecutive failures.
func backoff(failures int) time.Duration {
	d := maxBackoff
	if failures < 6 {
		d = time.Second << (failures - 1)
	}
	return d - time.Duration(rand.Int64N(int64(d/4)+1))
}
