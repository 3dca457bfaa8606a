package inflight

import (
	"context"
	"sync"
)

// Memory is what one request holds of a pool of bytes. It grows with the request,
// and is released at its end. Its methods may be called from many goroutines at
// once.
type Memory struct {
	pool    *Pool
	project string

	mu   sync.Mutex
	held int64
	done bool
}

// Memory returns that of a new request of a project, which holds nothing yet.
func (p *Pool) Memory(project string) *Memory { return &Memory{pool: p, project: project} }

// Hold reserves n more bytes. It may wait for them. The only request of a project
// gets what it asks for up to the project's limit, and anything beyond is not
// counted, since it would never be available.
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
	if late { // it ended meanwhile
		m.pool.Release(m.project, got)
	}
	return nil
}

// Keep gives back all but n bytes.
func (m *Memory) Keep(n int64) {
	m.mu.Lock()
	back := max(m.held-n, 0)
	m.held -= back
	m.mu.Unlock()
	if back > 0 {
		m.pool.Release(m.project, back)
	}
}

// End gives everything back. Nothing is counted after it.
func (m *Memory) End() {
	m.mu.Lock()
	m.done = true
	m.mu.Unlock()
	m.Keep(0)
}

// Limits are shared by the requests of a server.
type Limits struct {
	// Requests counts those that end by themselves, and Streams those that stay open.
	Requests, Streams *Pool
	// Memory counts the bytes that their bodies and answers take.
	Memory *Pool
}
