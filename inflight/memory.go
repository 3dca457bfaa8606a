package inflight

import (
	"context"
	"sync"
)

// Memory is the memory that one request holds from a pool. It grows with the
// request and is released when the request ends. Its methods may be called
// concurrently.
type Memory struct {
	pool    *Pool
	project string

	mu   sync.Mutex
	held int64
	done bool
}

// Memory returns the empty account of a new request of a project.
func (p *Pool) Memory(project string) *Memory { return &Memory{pool: p, project: project} }

// Hold reserves n more bytes, waiting if necessary. The only request of a project
// may exceed the project's limit: what exceeds it is not counted, since it would
// never be available.
func (m *Memory) Hold(ctx context.Context, n int64) error {
	m.mu.Lock()
	room := m.pool.most(m.project) - m.held
	ended := m.done
	m.mu.Unlock()
	if n = min(n, room); n <= 0 || ended {
		return nil
	}
	got, err := m.pool.Acquire(ctx, m.project, n)
	if err != nil {
		return err
	}
	m.mu.Lock()
	late := m.done
	if !late {
		m.held += got
	}
	m.mu.Unlock()
	if late { // the request ended in the meantime
		m.pool.Release(m.project, got)
	}
	return nil
}

// Keep releases all but n bytes.
func (m *Memory) Keep(n int64) {
	m.mu.Lock()
	back := max(m.held-n, 0)
	m.held -= back
	m.mu.Unlock()
	if back > 0 {
		m.pool.Release(m.project, back)
	}
}

// End releases everything. Later calls count nothing.
func (m *Memory) End() {
	m.mu.Lock()
	m.done = true
	m.mu.Unlock()
	m.Keep(0)
}

// Limits are shared by the requests of a server.
type Limits struct {
	// Requests counts requests that end by themselves, and Streams those that stay open.
	Requests, Streams *Pool
	// Memory counts the bytes of bodies and answers.
	Memory *Pool
}
