package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
)

// Terminate ends a sandbox for its owner.
func (s *Service) Terminate(ctx context.Context, id string) error {
	if _, err := s.find(ctx, id, bothy.ScopeSandboxesWrite); err != nil {
		return err
	}
	// What has begun is finished, also when the caller leaves.
	return s.terminate(context.WithoutCancel(ctx), id, bothy.Exit{Reason: bothy.EndTerminated, Detail: "a client terminated it"})
}

// terminate ends a sandbox for a reason. An ended one stays as it is.
func (s *Service) terminate(ctx context.Context, id string, x bothy.Exit) error {
	unlock := s.locks.lock(id)
	defer unlock()
	return s.terminateLocked(ctx, id, x)
}

func (s *Service) terminateLocked(ctx context.Context, id string, x bothy.Exit) error {
	sb, err := s.o.Store.Sandbox(ctx, id)
	if err != nil || sb.State.Ended() {
		return err
	}
	l := s.liveByID(id)
	sleep := sb.SnapshotID
	defer s.dropSleep(ctx, sleep)
	if l == nil {
		return s.end(ctx, sb, x)
	}
	if sb.State == bothy.StateRunning {
		sb.Ending = &x
		if err := s.move(ctx, sb, bothy.StateStopping); err != nil {
			return err
		}
	}
	s.leave(l)
	s.destroy(l.machine)
	defer close(l.gone)
	return s.end(ctx, sb, x)
}

// leave forgets a live machine whose end is expected.
func (s *Service) leave(l *live) {
	l.mu.Lock()
	l.ending = true
	l.mu.Unlock()
	s.forget(l)
}
