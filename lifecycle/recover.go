package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// recoverTimeout bounds the adoption of one machine.
const recoverTimeout = 15 * time.Second

// Recover takes over what the last server left: machines that still live are
// adopted, those that are overdue are ended, what was half done is finished or
// undone, and what nothing owns is removed. It returns how many were adopted.
func (s *Service) Recover(ctx context.Context) (int, error) {
	open, err := s.o.Store.SandboxesInState(ctx, bothy.StateStarting, bothy.StateRunning, bothy.StatePausing, bothy.StateResuming, bothy.StateStopping)
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	slots := make(chan struct{}, 8)
	for _, sb := range open {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := s.recoverOne(ctx, sb); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("recover %s: %w", sb.ID, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s.o.Meter.Recovered()
	s.engines.mu.Lock()
	s.engines.recovered = true
	s.engines.mu.Unlock()
	errs = append(errs, s.sweep(ctx), s.listSnapshots(ctx))
	s.Prune(ctx)
	return s.Live(), errors.Join(errs...)
}

// listSnapshots makes the list that of the snapshots on disk, where a server was
// killed while it was about to list one or had just deleted one.
func (s *Service) listSnapshots(ctx context.Context) error {
	ids, err := s.o.Blobs.List(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := s.o.Store.Snapshot(ctx, id); bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound {
			continue
		}
		if err := s.listSnapshot(ctx, id); err != nil {
			s.log.Warn("a snapshot on disk belongs to nobody", "snapshot", id, "error", err)
		}
	}
	listed, err := s.o.Store.AllSnapshots(ctx)
	if err != nil {
		return err
	}
	for _, n := range listed {
		if slices.Contains(ids, n.ID) {
			continue
		}
		s.log.Warn("the files of a snapshot are gone", "snapshot", n.ID, "sandbox", n.SandboxID)
		if err := s.o.Store.DeleteSnapshot(ctx, n.ID); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) listSnapshot(ctx context.Context, id string) error {
	_, m, release, err := s.openSnapshot(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	if m.ProjectID == "" {
		// Earlier servers did not write it down.
		sb, err := s.o.Store.Sandbox(ctx, m.SandboxID)
		if err != nil {
			return err
		}
		m.ProjectID = sb.ProjectID
	}
	return s.o.Store.PutSnapshot(ctx, record(m))
}

// sweep removes machines that are not live here.
func (s *Service) sweep(ctx context.Context) error {
	var errs []error
	for name, e := range s.engines.opened() {
		errs = append(errs, s.sweepEngine(ctx, name, e))
	}
	return errors.Join(errs...)
}

func (s *Service) sweepEngine(ctx context.Context, name string, e bothy.Engine) error {
	ids, err := e.Sweep(ctx, func(id string) bool { return s.liveByID(id) != nil })
	if len(ids) > 0 {
		s.log.Info("removed what was left of machines", "engine", name, "count", len(ids), "ids", ids[:min(len(ids), 20)])
	}
	return err
}

func (s *Service) recoverOne(ctx context.Context, sb *bothy.Sandbox) error {
	if sb.State == bothy.StateRunning || sb.State == bothy.StatePausing {
		// What cannot be opened is said below, where it matters.
		_, _ = s.needEngine(ctx, sb.Engine)
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience(sb.Engine, recoverTimeout))
	defer cancel()
	unlock := s.locks.lock(sb.ID)
	defer unlock()
	switch sb.State {
	case bothy.StateStarting:
		return s.end(ctx, sb, bothy.Exit{Reason: bothy.EndError, Detail: "the server stopped while the sandbox was starting"})
	case bothy.StateStopping:
		x := bothy.Exit{Reason: bothy.EndTerminated, Detail: "it was being terminated when the server stopped"}
		if sb.Ending != nil {
			x = *sb.Ending
		}
		return s.end(ctx, sb, x)
	case bothy.StateRunning:
		return s.readopt(ctx, sb)
	case bothy.StatePausing:
		return s.recoverPausing(ctx, sb)
	case bothy.StateResuming:
		// The machine that was coming up is swept away; the snapshot is whole.
		return s.move(ctx, sb, bothy.StatePaused)
	}
	return fmt.Errorf("sandbox is %s", sb.State)
}

// recoverPausing finishes a pause whose snapshot is there, and undoes one whose
// is not.
func (s *Service) recoverPausing(ctx context.Context, sb *bothy.Sandbox) error {
	_, m, release, err := s.openSnapshot(ctx, sb.SnapshotID)
	if err == nil {
		release()
		m.ProjectID = sb.ProjectID
		n := record(m)
		if err := s.o.Store.PutSnapshot(ctx, n); err != nil {
			return err
		}
		sb.EngineState, sb.ExpiresAt, sb.HeadSnapshotID = nil, nil, n.ID
		return s.move(ctx, sb, bothy.StatePaused)
	}
	sb.SnapshotID = ""
	if err := s.move(ctx, sb, bothy.StateRunning); err != nil {
		return err
	}
	return s.readopt(ctx, sb)
}

// readopt connects to a machine that outlived the server.
func (s *Service) readopt(ctx context.Context, sb *bothy.Sandbox) error {
	// One that is to be paused when its time is up is adopted first: keep sees
	// that it is overdue.
	if sb.ExpiresAt != nil && !sb.ExpiresAt.After(s.clock.Now()) && sb.OnTimeout != bothy.TimeoutPause {
		return s.end(ctx, sb, timedOut(sb))
	}
	engine := s.engine(sb.Engine)
	if engine == nil {
		return s.end(ctx, sb, bothy.Exit{Reason: bothy.EndError, Detail: fmt.Sprintf("this server cannot use the engine %q any more", sb.Engine)})
	}
	m, err := engine.Adopt(ctx, sb.ID, sb.EngineState)
	if err != nil {
		s.log.Info("machine is gone", "sandbox", sb.ID, "error", err)
		return s.end(ctx, sb, bothy.Exit{Reason: bothy.EndHostRestart, Detail: "the sandbox was gone when the server came back: the host was restarted, or the sandbox's process was killed"})
	}
	l, err := s.attach(ctx, sb, m, sb.GuestKey)
	if err == nil {
		if err = l.gateway.SetPolicy(sb.Network); err == nil {
			err = s.answers(ctx, l)
		}
		if err != nil {
			l.detach()
		}
	}
	if err != nil {
		s.destroy(m)
		return errors.Join(err, s.end(context.WithoutCancel(ctx), sb, bothy.Exit{Reason: bothy.EndError, Detail: "the sandbox did not answer after the server came back"}))
	}
	s.keep(l, sb, nil)
	return nil
}

// stillPatience is how long a machine may take to answer before it is taken
// for one that stands still, because a server was killed around a snapshot.
const stillPatience = time.Second

func (s *Service) answers(ctx context.Context, l *live) error {
	first, cancel := context.WithTimeout(ctx, s.patience(l.engine, stillPatience))
	defer cancel()
	if l.guest.WaitReady(first) == nil {
		return nil
	}
	if err := l.machine.Thaw(ctx); err != nil {
		return err
	}
	return l.guest.WaitReady(ctx)
}

// Janitor forgets sandboxes and events of long ago, and deletes snapshots beyond
// their time, until ctx ends. Machines that nothing owns cannot come up while
// the server runs.
func (s *Service) Janitor(ctx context.Context, every, keepEnded time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.Prune(ctx)
			if _, err := s.o.Store.DeleteEventsBefore(ctx, s.clock.Now().Add(-keepEnded)); err != nil {
				s.log.Warn("cannot forget old events", "error", err)
			}
			n, err := s.o.Store.DeleteSandboxesEndedBefore(ctx, s.clock.Now().Add(-keepEnded))
			if err != nil {
				s.log.Warn("cannot forget ended sandboxes", "error", err)
			} else if n > 0 {
				s.log.Info("forgot ended sandboxes", "count", n)
			}
			s.sweepNetworkLogs(ctx)
			s.forgetBudgets(ctx)
		}
	}
}

// Sorted ids of the live sandboxes, for `bothy down` and tests.
func (s *Service) LiveIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.live))
	for id := range s.live {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
