package keepalive

import (
	"slices"
	"time"
)

// port is what is known about a port. Its fields are guarded by Conns.mu.
type port struct {
	idle []*conn // the longest idle first
	blocking
}

// at returns what is known about a port; m.mu is held.
func (m *Conns) at(number uint16) *port {
	p := m.ports[number]
	if p == nil {
		p = &port{}
		m.ports[number] = p
	}
	return p
}

// take returns the connection to a port that has been idle for the shortest time, or nil.
func (m *Conns) take(number uint16) *conn {
	for {
		m.mu.Lock()
		p := m.ports[number]
		if p == nil || len(p.idle) == 0 {
			m.mu.Unlock()
			return nil
		}
		c := p.idle[len(p.idle)-1]
		m.remove(p, len(p.idle)-1, len(p.idle))
		m.mu.Unlock()
		if c.quiet() {
			return c
		}
		c.Close()
	}
}

// keep makes a connection wait for another request, or closes it.
func (m *Conns) keep(c *conn) {
	now := m.pool.clock.Now()
	m.mu.Lock()
	p := m.at(c.port)
	full := len(p.idle) >= idlePerPort || m.idle >= idlePerMachine
	if m.closed || full || p.isAlone(now) || !m.pool.enter() {
		m.mu.Unlock()
		c.Close()
		return
	}
	c.since, c.reused = now, true
	p.idle = append(p.idle, c)
	m.idle++
	if m.stop == nil {
		m.stop = m.pool.clock.AfterFunc(idleTime, m.reap)
	}
	m.mu.Unlock()
}

// remove removes the idle connections from and up to an index; m.mu is held.
func (m *Conns) remove(p *port, from, to int) {
	p.idle = slices.Delete(p.idle, from, to)
	m.idle -= to - from
	m.pool.idle.Add(int64(from - to))
}

// reap closes connections that have been idle for too long.
func (m *Conns) reap() {
	now := m.pool.clock.Now()
	m.mu.Lock()
	var out []*conn
	next := idleTime
	for number, p := range m.ports {
		out = append(out, m.expire(p, now, idleTime)...)
		if len(p.idle) > 0 {
			next = min(next, idleTime-now.Sub(p.idle[0].since))
		} else if p.forgettable(now) {
			delete(m.ports, number)
		}
	}
	m.stop = nil
	if m.idle > 0 {
		m.stop = m.pool.clock.AfterFunc(next, m.reap)
	}
	m.mu.Unlock()
	closeAll(out)
}

// expire removes the connections that have been idle for at least so long; m.mu is held.
func (m *Conns) expire(p *port, now time.Time, after time.Duration) []*conn {
	n := 0
	for n < len(p.idle) && now.Sub(p.idle[n].since) >= after {
		n++
	}
	out := slices.Clone(p.idle[:n])
	m.remove(p, 0, n)
	return out
}

// CloseIdle closes the idle connections. Those in use are kept afterwards as usual.
func (m *Conns) CloseIdle() {
	m.mu.Lock()
	var out []*conn
	for _, p := range m.ports {
		out = append(out, p.idle...)
		m.remove(p, 0, len(p.idle))
	}
	m.mu.Unlock()
	closeAll(out)
}

// Close is CloseIdle, after which no connection is kept any more.
func (m *Conns) Close() {
	m.mu.Lock()
	m.closed = true
	if m.stop != nil {
		m.stop()
	}
	m.mu.Unlock()
	m.CloseIdle()
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.Close()
	}
}
