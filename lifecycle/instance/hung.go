package instance

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// answerLook is how often a sandbox in use is checked to still respond, and answerPatience
	// how long a response may take.
	answerLook     = 10 * time.Second
	answerPatience = 10 * time.Second
	// answerTries is how many consecutive checks may fail before the calls that wait for the
	// sandbox are cancelled: a command may run for hours, but only in a sandbox that responds.
	answerTries = 3
	// answersAgain is when to retry with a sandbox that does not respond.
	answersAgain = 5 * time.Second
	// statsPatience limits a request for optional information.
	statsPatience = 5 * time.Second
)

// guestConns are the connections to a guest, so that they can be closed: otherwise a caller
// would wait for ever for a kernel that hangs.
type guestConns struct {
	mu   sync.Mutex
	open map[*guestConn]struct{}
	// dialing are those being opened.
	dialing map[*context.CancelFunc]struct{}
	// watched is set while the guest is checked regularly, and failed counts consecutive
	// failures.
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

// Quiet reports whether neither data nor EOF is waiting to be read, if the connection can tell.
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

// cut closes all connections. New ones may be opened.
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

// watchAnswers checks regularly that a sandbox responds, for as long as it is in use.
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
	standing := l.stands()
	failed := used && !standing && !s.answers(s.o.Background, l, answerPatience)
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
		s.o.Log.Error("a sandbox does not respond; cancelling the calls that wait for it", "sandbox", l.ID)
		c.cut()
	}
}

// stands reports whether a sandbox stands still because the server makes it.
func (l *Instance) stands() bool {
	return l.Activity.isFalling() || l.frozenForSnapshot.Load() > 0 || l.IsSuspended()
}

// answers reports whether a sandbox responds within a time.
func (s *Machines) answers(ctx context.Context, l *Instance, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience(l.Engine, within))
	defer cancel()
	return l.Guest.WaitReady(ctx) == nil
}

// isHung reports whether the sandbox failed to respond at the last checks.
func (c *guestConns) isHung() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hung
}

func DoesNotAnswer(id string, cause error) error {
	e := bothy.Errorf(bothy.CodeGuest, "sandbox %s does not respond", id).
		WithHint("Try again in a moment; or delete the sandbox, which does not wait for it.").Because(cause)
	e.RetryAfter = answersAgain
	return e
}
