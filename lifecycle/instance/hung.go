package instance

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// answerLook is how often a sandbox that has been in use for so long is asked
	// whether it still answers, and answerPatience how long it may take to.
	answerLook     = 10 * time.Second
	answerPatience = 10 * time.Second
	// answerTries is how many times in a row it may fail to. Then what waits for it is
	// given up: a command may run for hours, but only in a sandbox that answers.
	answerTries = 3
	// answersAgain is when a sandbox that does not answer is worth another try.
	answersAgain = 5 * time.Second
	// statsPatience bounds a question that a caller can do without.
	statsPatience = 5 * time.Second
)

// guestConns are the connections to a guest, so that they can be cut: a caller that waits
// for a kernel that hangs would wait for ever.
type guestConns struct {
	mu   sync.Mutex
	open map[*guestConn]struct{}
	// dialing are those that are being made.
	dialing map[*context.CancelFunc]struct{}
	// watched is set while it is looked whether the guest answers, and failed counts
	// the looks at which it did not.
	watched bool
	failed  int
	hung    bool
}

type guestConn struct {
	net.Conn
	of *guestConns
}

func (c *guestConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite is the half-close of a connection that has it.
func (c *guestConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Quiet reports whether neither bytes nor an end wait to be read, where the
// connection can tell.
func (c *guestConn) Quiet() bool {
	q, ok := c.Conn.(interface{ Quiet() bool })
	return ok && q.Quiet()
}

func (c *guestConns) dial(ctx context.Context, g bothy.Gateway) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	if c.open == nil {
		c.open, c.dialing = map[*guestConn]struct{}{}, map[*context.CancelFunc]struct{}{}
	}
	c.dialing[&cancel] = struct{}{}
	c.mu.Unlock()
	conn, err := g.Dial(ctx, bothy.GuestPort)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dialing, &cancel)
	if err != nil {
		return nil, err
	}
	n := &guestConn{conn, c}
	c.open[n] = struct{}{}
	return n, nil
}

// cut ends all connections. Who dials next may try.
func (c *guestConns) cut() {
	c.mu.Lock()
	conns := make([]net.Conn, 0, len(c.open))
	for n := range c.open {
		conns = append(conns, n.Conn)
	}
	clear(c.open)
	for cancel := range c.dialing {
		(*cancel)()
	}
	c.mu.Unlock()
	for _, n := range conns {
		n.Close()
	}
}

// watchAnswers looks from now on, for as long as a sandbox is in use, whether it
// answers.
func (s *Machines) watchAnswers(l *Instance) {
	c := &l.conns
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.watched {
		c.watched = true
		s.o.Clock.AfterFunc(answerLook, func() { s.lookForAnswer(l) })
	}
}

func (s *Machines) lookForAnswer(l *Instance) {
	c := &l.conns
	used := s.o.Background.Err() == nil && l.Activity.inUse() && s.owner.Runs(l)
	standing := l.Activity.isFalling() || l.standing.Load() > 0 || l.Hushed()
	failed := false
	if used && !standing {
		ctx, cancel := context.WithTimeout(s.o.Background, s.o.Patience(l.Engine, answerPatience))
		failed = l.Guest.WaitReady(ctx) != nil
		cancel()
	}
	c.mu.Lock()
	switch {
	case !used:
		c.watched, c.failed = false, 0
	case standing:
	case !failed:
		c.failed, c.hung = 0, false
	default:
		c.failed++
	}
	give := c.failed >= answerTries
	if give {
		c.failed, c.hung = 0, true
	}
	if c.watched {
		s.o.Clock.AfterFunc(answerLook, func() { s.lookForAnswer(l) })
	}
	c.mu.Unlock()
	if give {
		s.o.Log.Error("a sandbox does not answer, so the calls that wait for it are given up", "sandbox", l.ID)
		c.cut()
	}
}

// isHung reports whether the sandbox was last seen not to answer.
func (c *guestConns) isHung() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hung
}

func DoesNotAnswer(id string, cause error) error {
	e := bothy.Errorf(bothy.CodeGuest, "sandbox %s does not answer", id).
		WithHint("Try again in a moment; or delete the sandbox, which does not wait for it.").Because(cause)
	e.RetryAfter = answersAgain
	return e
}
