package instance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// overdueLook is how long the end of what times out inside a sandbox may be overdue before
	// the sandbox is checked to respond, and overduePatience how long a response may take.
	overdueLook     = 3 * time.Second
	overduePatience = 5 * time.Second
	// overdueLooks is after how many checks a call that must end is given up although the
	// sandbox responds.
	overdueLooks = 10
)

// InTime makes a call that the guest ends after a time. The clock that it ends it by is that of a
// kernel that may hang: if the call has not ended in time and the sandbox does not respond, it is
// given up. A call that must end is given up some time later in any case.
func (s *Machines) InTime(ctx context.Context, l *Instance, after time.Duration, mustEnd bool, call func(context.Context) error) error {
	bounded, giveUp := context.WithCancelCause(ctx)
	o := &overdue{s: s, l: l, mustEnd: mustEnd, ctx: bounded, giveUp: giveUp}
	o.lookIn(after + overdueLook)
	err := call(bounded)
	o.end()
	var late *bothy.Error
	if err != nil && ctx.Err() == nil && errors.As(context.Cause(bounded), &late) {
		return late
	}
	return err
}

// overdue watches one call.
type overdue struct {
	s       *Machines
	l       *Instance
	mustEnd bool
	ctx     context.Context
	giveUp  context.CancelCauseFunc
	looks   int

	mu   sync.Mutex
	stop func() bool
}

func (o *overdue) lookIn(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() == nil {
		o.stop = o.s.o.Clock.AfterFunc(d, o.look)
	}
}

func (o *overdue) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop()
	o.giveUp(nil)
}

// look gives the call up, or looks again later: a busy host delays a guest's answers, and a
// sandbox that the server stops for a snapshot does not hang.
func (o *overdue) look() {
	if o.l.stands() {
		o.lookIn(overdueLook)
		return
	}
	o.looks++
	if o.s.answers(o.ctx, o.l, overduePatience) && (!o.mustEnd || o.looks < overdueLooks) {
		o.lookIn(overdueLook)
		return
	}
	o.giveUp(DoesNotAnswer(o.l.ID, errOverdue))
}

var errOverdue = errors.New("what was to time out inside has not ended")
