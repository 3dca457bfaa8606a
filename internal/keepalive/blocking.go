package keepalive

import (
	"sync"
	"time"
)

// A server that serves one connection after the other, like many small programs, waits for the
// next request on an idle connection while all others wait. So while the first answer on a new
// connection is late, idle connections to the port are closed; and if that helped several times,
// none is kept for a while.
const (
	// lateAfter is when an answer counts as late, and how long a connection must have been idle
	// to be closed for that.
	lateAfter = 25 * time.Millisecond
	// blockedTimes is how often that must have helped, within blockedWithin, and aloneFor is how
	// long none is kept then.
	blockedTimes  = 3
	blockedWithin = 10 * time.Second
	aloneFor      = time.Minute
)

// blocking is what is known about a port whose server may be of this kind.
type blocking struct {
	times int
	first time.Time // of these times
	until time.Time // no connection is kept
}

func (b *blocking) isAlone(now time.Time) bool { return now.Before(b.until) }

// forgettable reports whether nothing is lost without it.
func (b *blocking) forgettable(now time.Time) bool {
	return !b.isAlone(now) && now.Sub(b.first) > blockedWithin
}

// helped records that closing idle connections has brought an answer.
func (b *blocking) helped(now time.Time) {
	if now.Sub(b.first) > blockedWithin {
		b.times, b.first = 0, now
	}
	if b.times++; b.times >= blockedTimes {
		b.until, b.times = now.Add(aloneFor), 0
	}
}

// late is an answer that is awaited on a new connection.
type late struct {
	m    *Conns
	port uint16

	mu     sync.Mutex
	stop   func() bool
	over   bool
	closed time.Time // when idle connections were last closed for it
}

// await starts to wait for an answer, until arrived is called.
func (m *Conns) await(number uint16) *late {
	w := &late{m: m, port: number}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop = m.pool.clock.AfterFunc(lateAfter, w.closeIdleForWaiter)
	return w
}

func (w *late) closeIdleForWaiter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	now := w.m.pool.clock.Now()
	w.m.mu.Lock()
	var out []*conn
	if p := w.m.ports[w.port]; p != nil {
		out = w.m.expire(p, now, lateAfter)
	}
	w.m.mu.Unlock()
	if closeAll(out); len(out) > 0 {
		w.closed = now
	}
	w.stop = w.m.pool.clock.AfterFunc(lateAfter, w.closeIdleForWaiter)
}

// arrived records that the answer has begun, or that there will be none.
func (w *late) arrived(answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.stop()
	now := w.m.pool.clock.Now()
	if !answered || w.closed.IsZero() || now.Sub(w.closed) > lateAfter {
		return
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.m.at(w.port).helped(now)
}
