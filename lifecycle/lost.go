package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// A sandbox whose host was lost while it ran is paused at its last snapshot, by the remaining
// hosts, or by its own host's server when that is back and the machine is gone. If its owner
// wants it resumed, its row says when. Every host looks for such rows, and the first to claim
// one resumes it. After a failure it is released for a later attempt by any host.

const (
	// resumeAttempts is the number of attempts, and resumeFirst and resumeSeldom are the first
	// and the longest pause between them: a quarter of an hour in total.
	resumeAttempts = 10
	resumeFirst    = 5 * time.Second
	resumeSeldom   = 3 * time.Minute
	// roomPatience is how long a due sandbox waits for a host with capacity before that counts
	// as a failed attempt.
	roomPatience = 15 * time.Second
	// resumePage is how many are listed at once, and resumeAtOnce how many are resumed
	// concurrently.
	resumePage, resumeAtOnce = 100, 4
)

// LostOptions configure how sandboxes that lost their host are resumed.
type LostOptions struct {
	// Every is how often to look for them; a message on Now looks at once. Optional.
	Every time.Duration
	Now   <-chan struct{}
	// MayTake reports whether this host has capacity for one more.
	MayTake func() bool
	// Fits reports whether this host can restore a sandbox and has its labels; nil means
	// always.
	Fits func(ctx context.Context, id string) bool
}

// LostCounts are the outcomes of attempts to resume sandboxes that lost their host.
type LostCounts struct{ Resumed, Failed, GivenUp int64 }

type lostCounts struct{ resumed, failed, givenUp atomic.Int64 }

// Lost returns the outcomes of attempts to resume sandboxes that lost their host.
func (s *Service) Lost() LostCounts {
	return LostCounts{s.lost.resumed.Load(), s.lost.failed.Load(), s.lost.givenUp.Load()}
}

// Claimed records that this host has claimed a sandbox without a host.
func (s *Service) Claimed(id string) { s.departures.remove(id) }

// ResumeLost resumes sandboxes that lost their host and are due, until ctx ends.
func (s *Service) ResumeLost(ctx context.Context, o LostOptions) {
	t := time.NewTicker(o.Every)
	defer t.Stop()
	for {
		if err := s.resumeDue(ctx, o); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot list the sandboxes to resume after the loss of their host; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-o.Now:
		}
	}
}

// resumeDue tries once to resume each due sandbox.
func (s *Service) resumeDue(ctx context.Context, o LostOptions) error {
	tried := map[string]bool{}
	for ctx.Err() == nil {
		due, err := s.o.Store.SandboxesToResume(ctx, s.clock.Now(), resumePage)
		if err != nil {
			return err
		}
		// Concurrent hosts should start with different ones.
		rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
		var wg sync.WaitGroup
		slots := make(chan struct{}, resumeAtOnce)
		more := false
		for _, sb := range due {
			if tried[sb.ID] {
				continue
			}
			tried[sb.ID], more = true, true
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				if err := s.resumeLost(ctx, o, sb); err != nil && ctx.Err() == nil {
					s.log.Warn("cannot resume a sandbox that lost its host; trying again", "sandbox", sb.ID, "error", err)
				}
			})
		}
		wg.Wait()
		if !more {
			return nil
		}
	}
	return ctx.Err()
}

// resumeLost tries to resume one sandbox, unless another host does.
func (s *Service) resumeLost(ctx context.Context, o LostOptions, sb *store.Sandbox) error {
	listed := sb.ResumeAt()
	room := o.MayTake() && (o.Fits == nil || o.Fits(ctx, sb.ID))
	if !room && (listed == nil || s.clock.Now().Sub(*listed) < roomPatience) {
		return nil // another host may have room
	}
	if own, err := s.takeLost(ctx, sb.ID); err != nil || !own {
		return err
	}
	unlock, err := s.ledger.LockToWork(ctx, sb.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if sb, err = s.ledger.Sandbox(ctx, sb.ID); err != nil {
		return ignoreNotFound(err)
	}
	at := sb.ResumeAt()
	// The store has said that it is due, by a clock that all hosts share. Another time means that
	// another host has tried meanwhile.
	if sb.State != bothy.StatePaused || at == nil || listed == nil || !at.Equal(*listed) {
		return nil
	}
	failed := error(bothy.Errorf(bothy.CodeCapacity, "no host had room for it"))
	if room {
		if failed = s.resumeLocked(ctx, sb, bothy.ResumeOptions{}); failed == nil {
			s.lost.resumed.Add(1)
			s.log.Info("resumed a sandbox that lost its host", "sandbox", sb.ID, "lost", sb.HostLoss.Host, "age_seconds", sb.HostLoss.AgeSeconds)
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err() // the server is stopping, which is not the sandbox's fault
	}
	return s.resumeLater(ctx, sb.ID, failed)
}

// takeLost claims a sandbox, and reports whether this host owns it.
func (s *Service) takeLost(ctx context.Context, id string) (bool, error) {
	claimed, err := s.o.Cluster.ClaimSandbox(ctx, id)
	if err != nil || claimed {
		if claimed {
			s.Claimed(id)
		}
		return claimed, err
	}
	owner, err := s.o.Cluster.SandboxHost(ctx, id)
	return err == nil && owner.Host == s.o.Cluster.Self(), ignoreNotFound(err)
}

// resumeLater records a failed attempt and the time of the next, by any host with capacity. The
// caller holds the sandbox's lock.
func (s *Service) resumeLater(ctx context.Context, id string, failed error) error {
	sb, err := s.ledger.Sandbox(ctx, id)
	if err != nil || sb.State != bothy.StatePaused || sb.HostLoss == nil {
		return errors.Join(failed, ignoreNotFound(err))
	}
	loss := *sb.HostLoss
	sb.HostLoss = &loss
	loss.ResumeAttempts++
	loss.Problem = bothy.AsError(failed).Detail
	loss.NextResumeAt = nil
	data := map[string]string{"attempts": strconv.Itoa(loss.ResumeAttempts), "snapshot_id": sb.SnapshotID, "detail": loss.Problem}
	if loss.ResumeAttempts < resumeAttempts {
		next := s.clock.Now().UTC().Add(resumePause(loss.ResumeAttempts))
		loss.NextResumeAt = &next
		data["next_resume_at"] = next.Format(time.RFC3339)
	} else {
		data["detail"] = fmt.Sprintf("%s; there are no more automatic attempts: resume it by hand", loss.Problem)
	}
	if s.o.Cluster.Shared() && s.ledger.Unsaved(id) == nil && s.storedForAll(ctx, sb.SnapshotID) {
		if err = s.o.Cluster.ReleaseSandbox(ctx, sb); err == nil {
			s.ledger.Forget(id)
		}
	} else {
		err = s.ledger.Put(ctx, sb)
	}
	if err != nil {
		return errors.Join(failed, err)
	}
	s.lost.failed.Add(1)
	if loss.NextResumeAt == nil {
		s.lost.givenUp.Add(1)
	}
	s.ledger.Emit(ctx, bothy.EventSandboxNotResumed, sb, data)
	return failed
}

// resumePause is the pause after the given number of attempts.
func resumePause(attempts int) time.Duration {
	d := resumeFirst
	for range attempts - 1 {
		d = min(2*d, resumeSeldom)
	}
	return d
}

// storedForAll reports whether every host can get a snapshot.
func (s *Service) storedForAll(ctx context.Context, id string) bool {
	n, err := s.o.Store.Snapshot(ctx, id)
	return err == nil && s.remote != nil && n.Durable == bothy.DurableStore
}

// pauseAfterLoss pauses a sandbox, whose machine was gone when this server started, at its last
// snapshot, and reports whether it could. The caller holds its lock.
func (s *Service) pauseAfterLoss(ctx context.Context, sb *store.Sandbox) bool {
	if sb.OnHostLoss == bothy.HostLossFail {
		return false
	}
	record := func(id string) *bothy.Snapshot {
		n, err := s.o.Cluster.TimedSnapshot(ctx, id)
		if err != nil {
			return nil
		}
		return n
	}
	n := sb.LastSnapshot(record, func(id string) *bothy.Snapshot {
		n := record(id)
		if n == nil || s.remote != nil && !s.remote.Local(id) && n.Durable != bothy.DurableStore {
			return nil
		}
		if s.remote == nil {
			_, release, err := s.o.Blobs.Open(ctx, id)
			if err != nil {
				return nil
			}
			release()
		}
		return n
	})
	if n == nil {
		return false
	}
	was := sb.State
	sb.PauseAfterLoss("", n, s.clock.Now().UTC())
	sb.State = was
	s.ledger.ForceTransition(ctx, sb, bothy.StatePaused, nil)
	s.ledger.Emit(ctx, bothy.EventSandboxHostLost, sb, map[string]string{
		"state": string(sb.State), "snapshot_id": n.ID, "age_seconds": strconv.Itoa(sb.HostLoss.AgeSeconds), "on_host_loss": string(sb.OnHostLoss),
		"detail": fmt.Sprintf("the sandbox was gone when the server came back; it is as it was at %s", n.CreatedAt.UTC().Format(time.RFC3339)),
	})
	return true
}
