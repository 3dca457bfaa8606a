package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

// retryAfter is when a call that came at the wrong time is worth another try.
const retryAfter = 5 * time.Second

// transitions lists what may follow what. Everything else is a bug, or a
// request that comes at the wrong time.
var transitions = map[bothy.State][]bothy.State{
	// One whose machine waited is stored first when it runs, or when it cannot.
	"":                  {bothy.StateStarting, bothy.StateRunning, bothy.StateFailed},
	bothy.StateStarting: {bothy.StateRunning, bothy.StateFailed, bothy.StateStopped},
	bothy.StateRunning:  {bothy.StatePausing, bothy.StateStopping, bothy.StateStopped, bothy.StateFailed},
	bothy.StatePausing:  {bothy.StatePaused, bothy.StateRunning, bothy.StateStopping, bothy.StateStopped, bothy.StateFailed},
	bothy.StatePaused:   {bothy.StateResuming, bothy.StateStopped, bothy.StateFailed},
	bothy.StateResuming: {bothy.StateRunning, bothy.StatePaused, bothy.StateStopped, bothy.StateFailed},
	bothy.StateStopping: {bothy.StateStopped, bothy.StateFailed},
}

func mayFollow(from, to bothy.State) bool {
	for _, s := range transitions[from] {
		if s == to {
			return true
		}
	}
	return false
}

// move changes the state and stores the sandbox. The caller holds its lock.
func (s *Service) move(ctx context.Context, sb *bothy.Sandbox, to bothy.State) error {
	if err := mayMove(sb, to); err != nil {
		return err
	}
	from := sb.State
	sb.State = to
	if err := s.put(ctx, sb); err != nil {
		sb.State = from
		return fmt.Errorf("store sandbox %s: %w", sb.ID, err)
	}
	return nil
}

func mayMove(sb *bothy.Sandbox, to bothy.State) error {
	if !mayFollow(sb.State, to) {
		return fmt.Errorf("sandbox %s cannot go from %q to %q", sb.ID, sb.State, to)
	}
	return failpoint.Hit("lifecycle.move." + string(to))
}

// moveBack is move to a state that the sandbox is in whatever the store says; see
// insist. It calls then, which may be nil, once it is stored.
func (s *Service) moveBack(ctx context.Context, sb *bothy.Sandbox, to bothy.State, then func()) {
	cannot := mayMove(sb, to)
	sb.State = to
	s.insist(ctx, sb, cannot, then)
}

// end moves a sandbox, whose machine is gone, to its last state.
func (s *Service) end(ctx context.Context, sb *bothy.Sandbox, x bothy.Exit) error {
	return s.endThen(ctx, sb, x, nil)
}

// endThen is end that calls then once the end is stored.
func (s *Service) endThen(ctx context.Context, sb *bothy.Sandbox, x bothy.Exit, then func()) error {
	to := bothy.StateStopped
	switch x.Reason {
	case bothy.EndOutOfMemory, bothy.EndDiskFull, bothy.EndError, bothy.EndHostRestart:
		to = bothy.StateFailed
	}
	if !mayFollow(sb.State, to) {
		return fmt.Errorf("sandbox %s cannot go from %q to %q", sb.ID, sb.State, to)
	}
	sb.Ended = &bothy.Ended{Reason: x.Reason, Detail: x.Detail, At: s.clock.Now().UTC()}
	sb.ExpiresAt = nil
	sb.Ending = nil
	sb.EngineState = nil
	sb.GuestKey = ""
	ended := *sb
	s.moveBack(ctx, sb, to, func() {
		s.emit(ctx, bothy.EventSandboxEnded, &ended, map[string]string{"reason": string(x.Reason), "detail": x.Detail})
		if then != nil {
			then()
		}
	})
	return nil
}

// wrongState says why a sandbox cannot be used now.
func (s *Service) wrongState(sb *bothy.Sandbox) error {
	switch {
	case sb.State.Ended() && sb.Ended != nil:
		return bothy.Errorf(bothy.CodeSandboxEnded, "sandbox %s has ended (%s): %s", sb.ID, sb.Ended.Reason, sb.Ended.Detail).
			WithHint("Create a new sandbox.")
	case sb.State == bothy.StatePaused || sb.State == bothy.StatePausing:
		return bothy.Errorf(bothy.CodeSandboxPaused, "sandbox %s is paused", sb.ID).
			WithHint("Resume it first: POST /v1/sandboxes/%s/resume, or create it with auto_resume.", sb.ID)
	}
	e := bothy.Errorf(bothy.CodeSandboxNotReady, "sandbox %s is %s", sb.ID, sb.State).WithHint("Try again in a moment.")
	if why := s.whyUnattached(sb.ID); why != "" && sb.State == bothy.StateRunning {
		e = bothy.Errorf(bothy.CodeSandboxNotReady, "sandbox %s cannot be used since the server was restarted: %s", sb.ID, why).
			WithHint("The server tries again by itself, so try again in a moment; or delete the sandbox.")
	}
	e.RetryAfter = retryAfter
	return e
}
