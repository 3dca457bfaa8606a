package keepalive_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/internal/keepalive"
)

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

func (clock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// half is one direction of a connection in memory.
type half struct {
	mu      sync.Mutex
	changed *sync.Cond
	buf     []byte
	ended   bool
	expired bool
}

func newHalf() *half {
	h := &half{}
	h.changed = sync.NewCond(&h.mu)
	return h
}

func (h *half) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	h.changed.Broadcast()
}

// wire is one end of a connection in memory, which knows whether it is quiet.
type wire struct{ in, out *half }

func pipe() (near, far *wire) {
	a, b := newHalf(), newHalf()
	return &wire{a, b}, &wire{b, a}
}

func (w *wire) Read(p []byte) (int, error) {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	for len(w.in.buf) == 0 && !w.in.ended && !w.in.expired {
		w.in.changed.Wait()
	}
	n := copy(p, w.in.buf)
	switch w.in.buf = w.in.buf[n:]; {
	case w.in.expired:
		return 0, os.ErrDeadlineExceeded
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (w *wire) Write(p []byte) (n int, err error) {
	w.out.set(func() {
		if w.out.ended {
			err = errors.New("broken pipe")
			return
		}
		n, w.out.buf = len(p), append(w.out.buf, p...)
	})
	return n, err
}

func (w *wire) Close() error {
	w.in.set(func() { w.in.ended = true })
	w.out.set(func() { w.out.ended = true })
	return nil
}

func (w *wire) Quiet() bool {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	return len(w.in.buf) == 0 && !w.in.ended
}

func (w *wire) SetReadDeadline(t time.Time) error {
	w.in.set(func() { w.in.expired = !t.IsZero() && !t.After(time.Now()) })
	return nil
}

func (w *wire) SetDeadline(t time.Time) error  { return w.SetReadDeadline(t) }
func (*wire) SetWriteDeadline(time.Time) error { return nil }
func (*wire) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*wire) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// port is a server in a sandbox.
type port struct {
	conns chan net.Conn
	dials atomic.Int64
	done  chan struct{}
	once  sync.Once
}

func newPort(t *testing.T) *port {
	p := &port{conns: make(chan net.Conn, 1000), done: make(chan struct{})}
	t.Cleanup(func() { p.Close() })
	return p
}

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (*port) Addr() net.Addr { return &net.TCPAddr{} }

func (p *port) dial() (net.Conn, error) {
	near, far := pipe()
	p.dials.Add(1)
	p.conns <- far
	return near, nil
}

// serve starts a net/http server on a new port.
func serve(t *testing.T, h http.HandlerFunc) *port {
	p := newPort(t)
	s := &http.Server{Handler: h}
	go s.Serve(p)
	t.Cleanup(func() { s.Close() })
	return p
}

// raw serves each connection to a new port with f, which gets its requests. Each connection has a
// goroutine unless they are served one by one.
func raw(t *testing.T, f func(c net.Conn, requests func() *http.Request)) *port {
	return accept(t, func(serve func()) { go serve() }, f)
}

// oneByOne is raw for a server that serves one connection after the other.
func oneByOne(t *testing.T, f func(c net.Conn, requests func() *http.Request)) *port {
	return accept(t, func(serve func()) { serve() }, f)
}

func accept(t *testing.T, start func(func()), f func(c net.Conn, requests func() *http.Request)) *port {
	p := newPort(t)
	go func() {
		for {
			c, err := p.Accept()
			if err != nil {
				return
			}
			start(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				f(c, func() *http.Request {
					r, err := http.ReadRequest(in)
					if err != nil {
						return nil
					}
					return r
				})
			})
		}
	}()
	return p
}

// machine is a machine with a server on each of some ports.
func machine(t *testing.T, pool *keepalive.Pool, ports map[uint16]*port) *keepalive.Conns {
	m := pool.Machine(func(_ context.Context, n uint16) (net.Conn, error) {
		if ports[n] == nil {
			return nil, fmt.Errorf("nothing listens on %d", n)
		}
		return ports[n].dial()
	})
	t.Cleanup(m.Close)
	return m
}

// one is a machine with a server on port 80.
func one(t *testing.T, p *port) *keepalive.Conns {
	return machine(t, keepalive.NewPool(clock{}), map[uint16]*port{80: p})
}

func get(ctx context.Context, m *keepalive.Conns, n uint16, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	return m.RoundTrip(req, n)
}

// fetch is get with the whole answer.
func fetch(ctx context.Context, m *keepalive.Conns, n uint16, path string) (string, error) {
	res, err := get(ctx, m, n, path)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

func wantFetch(t *testing.T, m *keepalive.Conns, n uint16, path, want string) {
	t.Helper()
	if got, err := fetch(t.Context(), m, n, path); err != nil || got != want {
		t.Fatalf("GET %s of port %d: %q, %v; want %q", path, n, got, err, want)
	}
}

func (p *port) wantDials(t *testing.T, want int64) {
	t.Helper()
	if got := p.dials.Load(); got != want {
		t.Errorf("%d connections were made, want %d", got, want)
	}
}

const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
