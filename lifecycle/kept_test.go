package lifecycle_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// site is an HTTP server in sandboxes that counts its connections.
type site struct {
	*httptest.Server
	mu   sync.Mutex
	open map[net.Conn]bool
	made int
}

func newSite(t *testing.T, says string) *site {
	s := &site{open: map[net.Conn]bool{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, says) }))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch state {
		case http.StateNew:
			s.open[c] = true
			s.made++
		case http.StateClosed:
			delete(s.open, c)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *site) counts() (open, made int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), s.made
}

// dial connects to the server as the guest does.
func (s *site) dial() (net.Conn, error) {
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	return quietConn{c.(*net.TCPConn)}, nil
}

type quietConn struct{ *net.TCPConn }

func (c quietConn) Quiet() (quiet bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN
	})
	return quiet
}

// fetch requests a page from port 8000 of a sandbox.
func (w *world) fetch(ctx context.Context, id string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:8000/", nil)
	if err != nil {
		return "", err
	}
	res, err := w.FetchPort(req, id, 8000)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

func (w *world) wantFetch(id, want string) {
	w.t.Helper()
	if got, err := w.fetch(w.me(), id); err != nil || got != want {
		w.t.Fatalf("fetched %q, %v; want %q", got, err, want)
	}
}

func TestAKeptConnectionIsNotActivity(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{IdleSeconds: 60, AutoResume: true, TimeoutSeconds: seconds(0)})
	s := newSite(t, "hello")
	w.guests.last().site = s
	for range 3 {
		w.wantFetch(sb.ID, "hello")
	}
	if open, made := s.counts(); open != 1 || made != 1 {
		t.Fatalf("%d connections were made, and %d are open", made, open)
	}
	// An idle connection does not count as activity.
	if m, err := w.Metrics(w.me(), sb.ID); err != nil || len(m.HeldAwakeBy) != 0 {
		t.Errorf("%+v, %v", m, err)
	}
	w.clock.pass(2 * time.Second)
	eventually(t, "it is closed", func() bool { open, _ := s.counts(); return open == 0 })
	w.clock.pass(time.Minute)
	w.clock.pass(time.Minute)
	if got := w.get(sb.ID); got.State != bothy.StatePaused {
		t.Fatalf("it is %s", got.State)
	}
	// A request resumes the sandbox.
	w.guests.onAdd = func(g *guest) { g.site = s }
	w.wantFetch(sb.ID, "hello")
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("it is %s", got.State)
	}
}

// A sandbox stays running until an answer has been read.
func TestReadingAnAnswerIsActivity(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{IdleSeconds: 60, TimeoutSeconds: seconds(0)})
	end := make(chan struct{})
	s := newSite(t, "")
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-end
	})
	w.guests.last().site = s
	req, err := http.NewRequestWithContext(w.me(), http.MethodGet, "http://localhost:8000/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.FetchPort(req, sb.ID, 8000)
	if err != nil {
		t.Fatal(err)
	}
	w.clock.pass(2 * time.Minute)
	if m, err := w.Metrics(w.me(), sb.ID); err != nil || len(m.HeldAwakeBy) != 1 || m.HeldAwakeBy[0] != "connection" {
		t.Errorf("%+v, %v", m, err)
	}
	close(end)
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Error(err)
	}
	res.Body.Close()
	if m, err := w.Metrics(w.me(), sb.ID); err != nil || len(m.HeldAwakeBy) != 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestAKeptConnectionDoesNotPreventFreezing(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	s := newSite(t, "hello")
	w.guests.last().site = s
	m := w.peek(sb.ID)
	w.wantFetch(sb.ID, "hello")
	if w.rest(); !m.Frozen() {
		t.Fatal("not frozen")
	}
	if w.wantFetch(sb.ID, "hello"); m.Frozen() {
		t.Error("a request was answered by a frozen machine")
	}
	if _, made := s.counts(); made != 2 {
		t.Errorf("%d connections were made", made)
	}
}

// Every operation that copies or ends a machine closes the connections that are kept to it.
func TestKeptConnectionsEndWithTheirMachine(t *testing.T) {
	for what, do := range map[string]func(w *world, id string) error{
		"pause": func(w *world, id string) error { _, err := w.Pause(w.me(), id, bothy.PauseOptions{}); return err },
		"snapshot": func(w *world, id string) error {
			_, err := w.CreateSnapshot(w.me(), id, bothy.SnapshotCreate{})
			return err
		},
		"fork":      func(w *world, id string) error { _, err := w.Fork(w.me(), id, bothy.ForkRequest{Count: 1}); return err },
		"terminate": func(w *world, id string) error { return w.Terminate(w.me(), id) },
		"rollback": func(w *world, id string) error {
			n, err := w.CreateSnapshot(w.me(), id, bothy.SnapshotCreate{})
			if err != nil {
				return err
			}
			w.wantFetch(id, "hello")
			_, err = w.Rollback(w.me(), id, n.ID)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
			s := newSite(t, "hello")
			w.guests.last().site = s
			w.wantFetch(sb.ID, "hello")
			if open, _ := s.counts(); open != 1 {
				t.Fatalf("%d connections are open", open)
			}
			if err := do(w, sb.ID); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is closed", func() bool { open, _ := s.counts(); return open == 0 })
		})
	}
}

// A resumed sandbox has another machine under the same id.
func TestANewMachineGetsNewConnections(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.guests.last().site = newSite(t, "first")
	w.wantFetch(sb.ID, "first")
	n := w.pause(sb.ID)
	second := newSite(t, "second")
	w.guests.onAdd = func(g *guest) { g.site = second }
	if _, err := w.Resume(w.me(), n.ID, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	w.wantFetch(sb.ID, "second")
	w.guests.onAdd = func(g *guest) { g.site = newSite(t, "copy") }
	copies, err := w.Fork(w.me(), sb.ID, bothy.ForkRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.wantFetch(copies[0].ID, "copy")
	w.wantFetch(sb.ID, "second")
}

func TestFetchingIsRefused(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.guests.last().site = newSite(t, "hello")
	w.wantFetch(sb.ID, "hello")
	if _, err := w.fetch(as(t, "other"), sb.ID); bothy.ErrorCode(err) != bothy.CodeSandboxNotFound {
		t.Errorf("another project's sandbox: %v", err)
	}
	readers := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: "mine", Scopes: []bothy.Scope{bothy.ScopeSandboxesRead}})
	if _, err := w.fetch(readers, sb.ID); bothy.ErrorCode(err) != bothy.CodeForbidden {
		t.Errorf("with a read-only key: %v", err)
	}
	req, err := http.NewRequestWithContext(w.me(), http.MethodGet, "http://localhost/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []uint16{0, bothy.GuestPort} {
		_, err := w.FetchPort(req, sb.ID, port)
		wantCode(t, err, bothy.CodeInvalid)
	}
}
