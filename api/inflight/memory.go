package inflight

import (
	"context"
	"sync"

	"github.com/bothy-dev/bothy"
)

// Memory is the memory that one request holds from a pool. It grows with the
// request and is released when the request ends. Its methods may be called
// concurrently.
type Memory struct {
	pool    *Pool
	project string

	mu   sync.Mutex
	held int64
	over int64 // what exceeds the project's limit
	done bool
	job  bool
}

// Memory returns the empty account of a new request of a project.
func (p *Pool) Memory(project string) *Memory { return &Memory{pool: p, project: project} }

// Job is Memory for work that is not a request, and may take long: it cannot exceed the
// project's limit.
func (p *Pool) Job(project string) *Memory {
	return &Memory{pool: p, project: project, job: true}
}

// Hold reserves n more bytes, waiting if necessary. The only request of a project
// may exceed the project's limit: what exceeds it is not counted, since it would
// never be available.
func (m *Memory) Hold(ctx context.Context, n int64) error {
	most := m.pool.most(m.project)
	m.mu.Lock()
	over := min(max(m.held+n-most, 0), n)
	ended := m.done
	m.mu.Unlock()
	if ended {
		return nil
	}
	if over > 0 && m.job {
		return bothy.Errorf(bothy.CodeTooLarge, "%s need more than %d MB of the server's memory", m.pool.what, most>>20).
			WithHint("Use fewer files, or fewer stages at once. The operator sets the limit, under `inflight` in the settings.")
	}
	if n > over {
		if _, err := m.pool.Acquire(ctx, m.project, n-over); err != nil {
			return err
		}
	}
	m.mu.Lock()
	late := m.done
	if !late {
		m.held += n - over
		m.over += over
	}
	m.mu.Unlock()
	if late { // the request ended in the meantime
		m.pool.Release(m.project, n-over)
	}
	return nil
}

// Keep releases all but n bytes.
func (m *Memory) Keep(n int64) {
	m.mu.Lock()
	back := max(m.held-n, 0)
	m.over = 0
	m.mu.Unlock()
	m.Give(back)
}

// Give releases n bytes, first of those that are not counted.
func (m *Memory) Give(n int64) {
	m.mu.Lock()
	uncounted := min(n, m.over)
	m.over -= uncounted
	back := min(n-uncounted, m.held)
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
	// Memory counts the bytes of bodies and answers, and Trees those of the files that builds
	// have in memory.
	Memory, Trees *Pool
}
