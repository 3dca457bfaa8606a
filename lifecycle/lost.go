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

// A sandbox that ran when its host was lost is paused at its last snapshot, by the hosts that
// are left, or by its own host's server when that is back and the machine is gone. One whose
// owner wants it resumed then says in its row when. Every host looks for such rows, and the
// first that takes one resumes it. One that fails is everybody's again, for a later attempt.

const (
	// resumeAttempts bounds how often it is tried, and resumeFirst and resumeSeldom are the
	// pauses between attempts, at first and at most: a quarter of an hour in all.
	resumeAttempts = 10
	resumeFirst    = 5 * time.Second
	resumeSeldom   = 3 * time.Minute
	// roomPatience is how long a sandbox that is due waits for a host with room before that
	// counts as an attempt.
	roomPatience = 15 * time.Second
	// resumePage is how many are looked for, and resumeAtOnce how many are resumed, at once.
	resumePage, resumeAtOnce = 100, 4
)

// LostOptions say how sandboxes that lost their host are resumed.
type LostOptions struct {
	// Every is how often it is looked for them, and Now has it done at once. Optional.
	Every time.Duration
	Now   <-chan struct{}
	// Hosts shares the sandboxes with others; nil for a server that is alone.
	Hosts store.Hosts
	// MayTake reports whether this host may take one more.
	MayTake func() bool
	// Fits reports whether this host can wake a sandbox, and is one that it may run on; nil is any.
	Fits func(ctx context.Context, id string) bool
}

// LostCounts is what became of attempts to resume sandboxes that lost their host.
type LostCounts struct{ Resumed, Failed, GivenUp int64 }

type lostCounts struct{ resumed, failed, givenUp atomic.Int64 }

// Lost tells what became of attempts to resume sandboxes that lost their host.
func (s *Service) Lost() LostCounts {
	return LostCounts{s.lost.resumed.Load(), s.lost.failed.Load(), s.lost.givenUp.Load()}
}

// Claimed notes that a sandbox without a host is this host's now.
func (s *Service) Claimed(id string) { s.departures.remove(id) }

// ResumeLost resumes sandboxes that lost their host and are to be resumed, until ctx ends.
func (s *Service) ResumeLost(ctx context.Context, o LostOptions) {
	t := time.NewTicker(o.Every)
	defer t.Stop()
	for {
		if err := s.resumeDue(ctx, o); err != nil && ctx.Err() == nil {
			s.log.Warn("it cannot be found out which sandboxes are to be resumed that lost their host, and is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-o.Now:
		}
	}
}

// resumeDue tries each sandbox that is due once.
func (s *Service) resumeDue(ctx context.Context, o LostOptions) error {
	tried := map[string]bool{}
	for ctx.Err() == nil {
		due, err := s.o.Store.SandboxesToResume(ctx, s.clock.Now(), resumePage)
		if err != nil {
			return err
		}
		// Hosts that look at the same moment had better not begin with the same one.
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
					s.log.Warn("a sandbox that lost its host is not resumed yet", "sandbox", sb.ID, "error", err)
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

// resumeLost tries one that is due, unless another host does.
func (s *Service) resumeLost(ctx context.Context, o LostOptions, sb *store.Sandbox) error {
	room := o.MayTake() && (o.Fits == nil || o.Fits(ctx, sb.ID))
	if at := sb.ResumeAt(); !room && (at == nil || s.clock.Now().Sub(*at) < roomPatience) {
		return nil // another host may have room
	}
	if own, err := s.takeLost(ctx, o.Hosts, sb.ID); err != nil || !own {
		return err
	}
	unlock, err := s.ledger.LockToWork(ctx, sb.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if sb, err = s.ledger.Sandbox(ctx, sb.ID); err != nil {
		return unlessGone(err)
	}
	at := sb.ResumeAt()
	if sb.State != bothy.StatePaused || at == nil || at.After(s.clock.Now()) {
		return nil
	}
	failed := error(bothy.Errorf(bothy.CodeCapacity, "no host has had room for it"))
	if room {
		if failed = s.resumeLocked(ctx, sb, bothy.ResumeOptions{}); failed == nil {
			s.lost.resumed.Add(1)
			s.log.Info("a sandbox that lost its host is resumed", "sandbox", sb.ID, "lost", sb.HostLoss.Host, "age_seconds", sb.HostLoss.AgeSeconds)
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err() // this server stops, and that says nothing of the sandbox
	}
	return s.resumeLater(ctx, o.Hosts, sb.ID, failed)
}

// takeLost makes a sandbox this host's, and reports whether it is.
func (s *Service) takeLost(ctx context.Context, hosts store.Hosts, id string) (bool, error) {
	if hosts == nil {
		return true, nil
	}
	claimed, err := hosts.ClaimSandbox(ctx, id)
	if err != nil || claimed {
		if claimed {
			s.Claimed(id)
		}
		return claimed, err
	}
	owner, err := hosts.SandboxHost(ctx, id)
	return err == nil && owner.Host == hosts.Self(), unlessGone(err)
}

// resumeLater writes down that an attempt has failed, and when the next is made, by whichever
// host has room then. The caller holds the sandbox's lock.
func (s *Service) resumeLater(ctx context.Context, hosts store.Hosts, id string, failed error) error {
	sb, err := s.ledger.Sandbox(ctx, id)
	if err != nil || sb.State != bothy.StatePaused || sb.HostLoss == nil {
		return errors.Join(failed, unlessGone(err))
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
		data["detail"] = fmt.Sprintf("%s; it is not tried again, and can be resumed by a call", loss.Problem)
	}
	if hosts != nil && s.ledger.Unsaved(id) == nil && s.storedForAll(ctx, sb.SnapshotID) {
		err = hosts.ReleaseSandbox(ctx, sb)
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

// resumePause is how long it is waited after so many attempts.
func resumePause(attempts int) time.Duration {
	d := resumeFirst
	for range attempts - 1 {
		d = min(2*d, resumeSeldom)
	}
	return d
}

// storedForAll reports whether every host has a snapshot.
func (s *Service) storedForAll(ctx context.Context, id string) bool {
	n, err := s.o.Store.Snapshot(ctx, id)
	return err == nil && s.remote != nil && n.Durable == bothy.DurableStore
}

// pauseAfterLoss has a sandbox, whose machine was gone when this server came back, be paused
// at its last snapshot, and reports whether it is. The caller holds its lock.
func (s *Service) pauseAfterLoss(ctx context.Context, sb *store.Sandbox) bool {
	if sb.OnHostLoss == bothy.HostLossFail {
		return false
	}
	record := func(id string) *bothy.Snapshot {
		n, err := s.o.Store.Snapshot(ctx, id)
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
