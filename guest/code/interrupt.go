package code

import (
	"slices"

	"github.com/bothy-dev/bothy"
)

// piece is a piece of code between its arrival and its end.
type piece struct {
	hasTurn     bool
	watchdog    *watchdog // set while the code runs
	interrupted bool      // interrupted before it ran
}

// arrive registers a piece of code. Code that only warms the kernel is not registered, so that
// it cannot be interrupted.
func (c *Context) arrive(req Request) *piece {
	p := &piece{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if req.Code != "" {
		c.pieces = append(c.pieces, p)
	}
	return p
}

func (c *Context) leave(p *piece) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pieces = slices.DeleteFunc(c.pieces, func(q *piece) bool { return q == p })
}

func (c *Context) takeTurn(p *piece) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.hasTurn = true
}

// begin is called when the kernel is about to get the code. It returns false if the code was
// interrupted.
func (c *Context) begin(p *piece, w *watchdog) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.interrupted {
		return false
	}
	p.watchdog = w
	return true
}

// Interrupt stops the code that is running in the context, or that will run once the kernel has
// started. Code that ignores the interrupt continues. If there is none, the error is
// CodeConflict.
func (c *Context) Interrupt() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pieces) == 0 {
		return bothy.Errorf(bothy.CodeConflict, "no code runs in the context %q", c.ID).
			WithHint("It may have ended. What was sent only just now may not have arrived: then try again.")
	}
	p := c.pieces[0]
	if i := slices.IndexFunc(c.pieces, func(q *piece) bool { return q.hasTurn }); i >= 0 {
		p = c.pieces[i]
	}
	if p.watchdog == nil {
		p.interrupted = true
	} else {
		go p.watchdog.interruptRepeatedly(interruptTime)
	}
	return nil
}
