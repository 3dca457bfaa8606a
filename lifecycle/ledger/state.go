package ledger

import (
	"context"
	"fmt"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/store"
)

// transitions lists the allowed transitions. Any other is a bug, or a request at the wrong
// time.
var transitions = map[bothy.State][]bothy.State{
	// A sandbox with a ready machine is first stored when it runs or has failed.
	"":                  {bothy.StateStarting, bothy.StateRunning, bothy.StateFailed},
	bothy.StateStarting: {bothy.StateRunning, bothy.StateFailed, bothy.StateStopped},
	// A sandbox whose host was lost becomes paused at an earlier snapshot.
	bothy.StateRunning:  {bothy.StatePausing, bothy.StatePaused, bothy.StateStopping, bothy.StateStopped, bothy.StateFailed},
	bothy.StatePausing:  {bothy.StatePaused, bothy.StateRunning, bothy.StateStopping, bothy.StateStopped, bothy.StateFailed},
	bothy.StatePaused:   {bothy.StateResuming, bothy.StateStopped, bothy.StateFailed},
	bothy.StateResuming: {bothy.StateRunning, bothy.StatePaused, bothy.StateStopped, bothy.StateFailed},
	bothy.StateStopping: {bothy.StateStopped, bothy.StateFailed},
	// A failed sandbox can be restarted.
	bothy.StateFailed: {bothy.StateStarting},
}

func mayFollow(from, to bothy.State) bool {
	for _, s := range transitions[from] {
		if s == to {
			return true
		}
	}
	return false
}

// Transition changes the state and stores the sandbox. The caller holds its lock.
func (g *Ledger) Transition(ctx context.Context, sb *store.Sandbox, to bothy.State) error {
	if err := checkTransition(sb, to); err != nil {
		return err
	}
	from := sb.State
	sb.State = to
	put := g.o.Store.PutSandbox
	if g.o.Start != nil && starts(from, to) {
		put = func(ctx context.Context, sb *store.Sandbox) error {
			return g.o.Start(ctx, sb, from != bothy.StatePaused)
		}
	}
	if err := g.put(ctx, sb, put); err != nil {
		sb.State = from
		return fmt.Errorf("store sandbox %s: %w", sb.ID, err)
	}
	return nil
}

// starts reports whether a transition makes a sandbox count against its project's plan.
func starts(from, to bothy.State) bool {
	return !counts(from) && counts(to)
}

// counts reports whether a sandbox in this state counts as running.
func counts(s bothy.State) bool { return s != "" && s != bothy.StatePaused && !s.Ended() }

func checkTransition(sb *store.Sandbox, to bothy.State) error {
	if !mayFollow(sb.State, to) {
		return fmt.Errorf("sandbox %s cannot go from %q to %q", sb.ID, sb.State, to)
	}
	return failpoint.Hit("lifecycle.move." + string(to))
}

// ForceTransition is Transition for a state that is already a fact: if it cannot be stored now,
// it is stored later. It calls then, if not nil, once it is stored.
func (g *Ledger) ForceTransition(ctx context.Context, sb *store.Sandbox, to bothy.State, then func()) {
	cannot := checkTransition(sb, to)
	sb.State = to
	// A refusal has been reported.
	_ = g.storeOrRetry(ctx, sb, cannot, then)
}

// End moves a sandbox whose machine is gone to its final state. It returns an error if the end will
// never be stored, because something else has changed the row or owns it: what is in it may not be
// what has ended.
func (g *Ledger) End(ctx context.Context, sb *store.Sandbox, x bothy.Exit) error {
	return g.EndThen(ctx, sb, x, nil)
}

// EndThen is End, and calls then once the end is stored.
func (g *Ledger) EndThen(ctx context.Context, sb *store.Sandbox, x bothy.Exit, then func()) error {
	to := bothy.StateStopped
	switch x.Reason {
	case bothy.EndOutOfMemory, bothy.EndDiskFull, bothy.EndError, bothy.EndHostRestart, bothy.EndHostLost:
		to = bothy.StateFailed
	}
	if !mayFollow(sb.State, to) {
		return fmt.Errorf("sandbox %s cannot go from %q to %q", sb.ID, sb.State, to)
	}
	sb.Ended = &bothy.Ended{Reason: x.Reason, Detail: x.Detail, At: g.o.Clock.Now().UTC()}
	sb.ExpiresAt = nil
	sb.Ending = nil
	sb.EngineState = nil
	sb.GuestKey = ""
	sb.StopResuming()
	ended := *sb
	cannot := checkTransition(sb, to)
	sb.State = to
	return g.storeOrRetry(ctx, sb, cannot, func() {
		g.Emit(ctx, bothy.EventSandboxEnded, &ended, map[string]string{"reason": string(x.Reason), "detail": x.Detail})
		if then != nil {
			then()
		}
	})
}
