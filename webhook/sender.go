package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const (
	// giveUp is how long after the last delivery a failing webhook is disabled.
	giveUp = 24 * time.Hour
	// refusals is how often an event that the receiver refuses is sent.
	refusals = 3
	// skipped is after how many unsent events the position is stored.
	skipped = 1000
	// restPause is the pause between two attempts to read events.
	restPause = 5 * time.Second
)

// pauses are the pauses between attempts; the last one is repeated.
var pauses = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
}

// sender delivers for one webhook, as it was when the sender was made.
type sender struct {
	s       *Service
	w       *store.Webhook
	state   bothy.WebhookState
	skipped int

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
}

func newSender(s *Service, w *store.Webhook) *sender {
	x := &sender{s: s, w: w, state: w.WebhookState, done: make(chan struct{})}
	x.ctx, x.cancel = context.WithCancel(bothy.WithCaller(s.run, &bothy.Caller{
		ProjectID: w.ProjectID, TokenName: "webhook " + w.ID, Scopes: []bothy.Scope{bothy.ScopeSandboxesRead},
	}))
	return x
}

// work follows the events of the webhook's project.
func (x *sender) work() {
	defer close(x.done)
	defer x.cancel()
	for {
		err := x.s.o.Events.Events(x.ctx, bothy.EventFilter{Since: x.state.LastEventID, Follow: true}, x.deal)
		if errors.Is(err, errDisabled) || x.ctx.Err() != nil {
			return
		}
		if err != nil {
			x.s.o.Log.Error("a webhook cannot read events, and tries again", "webhook", x.w.ID, "error", err)
		}
		if !x.rest(restPause) {
			return
		}
	}
}

// deal sends an event until it is delivered or dropped.
func (x *sender) deal(e bothy.Event) error {
	if !wants(&x.w.Webhook, e.Type) {
		x.state.LastEventID = e.ID
		if x.skipped++; x.skipped < skipped {
			return nil
		}
		return x.store()
	}
	for try := 0; ; try++ {
		_, err := x.s.post(x.ctx, x.w, e)
		if x.ctx.Err() != nil {
			return x.ctx.Err() // and the next server sends it again
		}
		now := time.Now().UTC()
		var no refused
		var end gone
		switch {
		case err == nil:
			x.state.LastEventID, x.state.DeliveredAt = e.ID, &now
			x.state.FailingSince, x.state.NextAttemptAt, x.state.LastError = nil, nil, ""
			return x.store()
		case errors.As(err, &end):
			return x.disable(err.Error())
		case errors.As(err, &no) && try+1 >= refusals:
			x.state.LastEventID, x.state.LastError, x.state.NextAttemptAt = e.ID, err.Error(), nil
			x.state.Refused++
			return x.store()
		}
		if x.state.FailingSince == nil {
			x.state.FailingSince = &now
		}
		x.state.LastError = err.Error()
		if now.Sub(*x.state.FailingSince) >= giveUp {
			return x.disable(fmt.Sprintf("nothing could be delivered for %v: %v", giveUp, err))
		}
		// Spread the retries of many webhooks.
		pause := pauses[min(try, len(pauses)-1)]
		pause += time.Duration(rand.Int64N(int64(pause / 10)))
		next := now.Add(pause)
		x.state.NextAttemptAt = &next
		if err := x.store(); err != nil {
			return err
		}
		if !x.rest(pause) {
			return x.ctx.Err()
		}
	}
}

// store records the position. A concurrent deletion of the webhook wins.
func (x *sender) store() error {
	x.skipped = 0
	return x.s.o.Store.SetWebhookState(context.WithoutCancel(x.ctx), x.w.ID, x.state)
}

// disable disables the webhook. Its events are not lost: it continues with them when it is
// enabled again.
func (x *sender) disable(why string) error {
	x.state.DisabledReason, x.state.LastError, x.state.NextAttemptAt = why, why, nil
	ctx := context.WithoutCancel(x.ctx)
	off := *x.w
	off.Enabled = false
	if err := x.s.o.Store.PutWebhook(ctx, &off); err != nil {
		return err
	}
	if err := x.store(); err != nil {
		return err
	}
	x.s.o.Log.Warn("a webhook was disabled", "webhook", x.w.ID, "project", x.w.ProjectID, "reason", why)
	return errDisabled
}

// rest waits, and reports whether to continue.
func (x *sender) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-x.ctx.Done():
		return false
	}
}
