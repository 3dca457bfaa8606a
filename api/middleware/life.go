package middleware

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Life controls how long requests may run while the server closes.
type Life struct {
	// closing ends when the server starts to close: streams that only follow end with it.
	closing      context.Context
	beginClosing context.CancelFunc
	// working ends when the server has waited long enough.
	working     context.Context
	stopWorking context.CancelFunc
	// sockets counts upgraded connections, which net/http forgets about.
	sockets sync.WaitGroup
	// busy counts the requests in flight.
	busy atomic.Int64
}

func newLife() *Life {
	l := &Life{}
	l.closing, l.beginClosing = context.WithCancel(context.Background())
	l.working, l.stopWorking = context.WithCancel(context.Background())
	return l
}

// BeginClosing ends the streams that only follow.
func (l *Life) BeginClosing() { l.beginClosing() }

// StopWorking cuts off the requests in flight.
func (l *Life) StopWorking() { l.stopWorking() }

// Working is the context of all requests.
func (l *Life) Working() context.Context { return l.working }

// Closing reports whether the server has begun to close.
func (l *Life) Closing() bool { return l.closing.Err() != nil }

// Upgraded counts a connection that net/http forgets about, until the returned
// function is called.
func (l *Life) Upgraded() (done func()) {
	l.sockets.Add(1)
	return l.sockets.Done
}

// Following returns a context for streams that would never end by themselves: it also ends when
// the server is about to close.
func (l *Life) Following(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.closing, cancel)
	return ctx, func() { stop(); cancel() }
}

// Outliving returns the context of a call whose caller may come back for the answer:
// it ends with the server and not with the connection.
func (l *Life) Outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(l.working, cancel)
	return ctx, func() { stop(); cancel() }
}

// WaitUntilIdle returns when no request is in flight, or at the deadline.
func (l *Life) WaitUntilIdle(deadline time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for l.busy.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// WaitForSockets returns when no upgraded connection is left, or ctx ends.
func (l *Life) WaitForSockets(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		l.sockets.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
