package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// tightBounds are low limits, which a greedy tenant soon reaches. Requests beyond them are refused after
// a second.
const tightBounds = `inflight:
  requests: 60
  requests_per_project: 12
  streams: 40
  streams_per_project: 6
  memory_mb: 320
  memory_per_project_mb: 128
  wait_seconds: 1
  connections: 200
  answers_mb: 8
  answers_per_project_mb: 2
  answers_per_project: 500
`

// tenant is a project with a key and a sandbox.
type tenant struct {
	*testing.T
	*client.Client
	s       *server
	key, id string
}

func (s *server) tenant(t *testing.T, project string) *tenant {
	t.Helper()
	if _, err := s.Projects.CreateProject(t.Context(), bothy.ProjectCreate{ID: project, Plan: bothy.PlanPro}); err != nil {
		t.Fatal(err)
	}
	k, err := s.Tokens.CreateToken(t.Context(), bothy.TokenCreate{Name: project, ProjectID: project,
		Scopes: []bothy.Scope{bothy.ScopeSandboxesRead, bothy.ScopeSandboxesWrite, bothy.ScopeTemplatesRead}})
	if err != nil {
		t.Fatal(err)
	}
	x := &tenant{t, client.New(s.URL(), k.Key), s, k.Key, ""}
	day := 24 * 60 * 60
	sb, err := x.Sandboxes.Create(t.Context(), bothy.SandboxCreate{Template: templateName, TimeoutSeconds: &day})
	if err != nil {
		t.Fatal(err)
	}
	x.id = sb.ID
	t.Cleanup(func() {
		if err := s.Sandboxes.Terminate(context.WithoutCancel(t.Context()), sb.ID); err != nil && bothy.ErrorCode(err) != bothy.CodeSandboxNotFound {
			t.Log(err)
		}
		_ = x.Sandboxes.Terminate(context.WithoutCancel(t.Context()), sb.ID)
	})
	return x
}

// once sends one request without retries, and returns the status.
func (x *tenant) once(method, path string, body []byte, header http.Header) (int, string) {
	ctx, cancel := context.WithTimeout(x.Context(), hangs)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, x.s.URL()+"/v1/sandboxes/"+x.id+path, bytes.NewReader(body))
	if err != nil {
		x.Error(err)
		return 0, ""
	}
	if header != nil {
		r.Header = header
	}
	r.Header.Set("Authorization", "Bearer "+x.key)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		x.Errorf("%s %s: %v", method, path, err)
		return 0, ""
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") == "" {
		x.Errorf("429 without Retry-After: %s", text)
	}
	return res.StatusCode, string(text)
}

// crowd makes n concurrent calls and counts the statuses.
func (x *tenant) crowd(n int, do func(i int) int) map[int]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := map[int]int{}
	for i := range n {
		wg.Go(func() {
			status := do(i)
			mu.Lock()
			defer mu.Unlock()
			got[status]++
		})
	}
	wg.Wait()
	return got
}

func (x *tenant) run(command string) []byte {
	b, err := json.Marshal(map[string]any{"command": command})
	if err != nil {
		x.Fatal(err)
	}
	return b
}

// lives lets the victim work meanwhile: none of its calls may fail.
func (x *tenant) lives(t *testing.T, while func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	calls := 0
	wg.Go(func() {
		for ; ctx.Err() == nil || calls < 3; calls++ {
			if status, text := x.once("POST", "/exec", x.run("echo here"), nil); status != 200 || !strings.Contains(text, "here") {
				t.Errorf("the victim's call %d: %d %s", calls, status, text)
				return
			}
			if status, text := x.once("GET", "", nil, nil); status != 200 {
				t.Errorf("the victim's call %d: %d %s", calls, status, text)
				return
			}
		}
	})
	while()
	cancel()
	wg.Wait()
	if calls < 3 {
		t.Errorf("the victim made %d calls", calls)
	}
}

var hwm = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak returns the server's peak memory since the last call, in MB.
func (s *server) peak(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	kb, _ := strconv.Atoi(hwm.FindStringSubmatch(string(b))[1])
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.PID()), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}

func (s *server) descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// sizeOf returns the size of a file of the server's state, with its log.
func (s *server) sizeOf(name string) (n int64) {
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(filepath.Join(s.Home, name+suffix)); err == nil {
			n += info.Size()
		}
	}
	return n
}

// A tenant that uses as much of the server's memory, database, descriptors, streams and requests as
// possible is refused at limits of its own. Another tenant's calls succeed meanwhile, and everything is
// released afterwards.
func TestGreedyTenant(t *testing.T) {
	s := stoppedServer(t)
	s.NoPool, s.Settings = true, tightBounds
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	greedy, victim := s.tenant(t, "greedy"), s.tenant(t, "victim")
	before := s.descriptors(t)
	only := func(t *testing.T, got map[int]int) {
		t.Helper()
		for status := range got {
			if status != 200 && status != 429 {
				t.Errorf("statuses %v", got)
			}
		}
		if got[200] == 0 {
			t.Errorf("no request succeeded: %v", got)
		}
		t.Log("statuses", got)
	}
	t.Run("memory: bodies", func(t *testing.T) {
		body, err := json.Marshal(map[string]string{"path": "/tmp/x", "content": strings.Repeat("x", 15<<20)})
		if err != nil {
			t.Fatal(err)
		}
		base := s.peak(t)
		victim.lives(t, func() {
			got := greedy.crowd(40, func(int) int { status, _ := greedy.once("POST", "/files", body, nil); return status })
			if only(t, got); got[429] == 0 {
				t.Errorf("nothing was refused: %v", got)
			}
		})
		// Without a limit each takes 70 MB.
		if now := s.peak(t); now > base+500 {
			t.Errorf("the server went from %d to %d MB", base, now)
		}
	})
	t.Run("memory: output", func(t *testing.T) {
		body := greedy.run("head -c 9000000 /dev/zero | tr '\\0' a")
		base := s.peak(t)
		victim.lives(t, func() {
			only(t, greedy.crowd(12, func(int) int { status, _ := greedy.once("POST", "/exec", body, nil); return status }))
		})
		if now := s.peak(t); now > base+500 {
			t.Errorf("the server went from %d to %d MB", base, now)
		}
	})
	t.Run("database", func(t *testing.T) {
		body, was := greedy.run("head -c 200000 /dev/zero | tr '\\0' a"), s.sizeOf("bothy.db")
		victim.lives(t, func() {
			for round := range 10 {
				only(t, greedy.crowd(8, func(i int) int {
					status, _ := greedy.once("POST", "/exec", body, http.Header{"Idempotency-Key": {fmt.Sprint(round, "-", i)}})
					return status
				}))
			}
		})
		if now := s.sizeOf("bothy.db"); now > was+4<<20 {
			t.Errorf("the database grew from %d to %d bytes", was, now)
		}
		if n := s.sizeOf("bothy-answers.db"); n > 12<<20 {
			t.Errorf("80 answers of 200 kB take %d bytes, where 2 MB are allowed", n)
		}
		status, text := greedy.once("POST", "/exec", body, http.Header{"Idempotency-Key": {"9-0"}})
		if status != 200 || len(text) < 200_000 {
			t.Errorf("the last answer is gone: %d", status)
		}
		if status, text = greedy.once("POST", "/exec", body, http.Header{"Idempotency-Key": {"0-0"}}); status != 409 || !strings.Contains(text, "already executed") {
			t.Errorf("the first request was executed again: %d %.100s", status, text)
		}
	})
	t.Run("requests", func(t *testing.T) {
		body := greedy.run("sleep 4")
		victim.lives(t, func() {
			got := greedy.crowd(40, func(int) int { status, _ := greedy.once("POST", "/exec", body, nil); return status })
			if only(t, got); got[200] > 24 || got[429] < 16 {
				t.Errorf("with 12 requests allowed in flight: %v", got)
			}
		})
	})
	t.Run("streams", func(t *testing.T) { greedyStreams(t, greedy, victim) })
	t.Run("connections", func(t *testing.T) {
		victim.lives(t, func() {
			from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}}
			for range 600 {
				c, err := from.DialContext(t.Context(), "tcp", s.Address)
				if err != nil {
					continue // the greedy client's own limit
				}
				defer c.Close()
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Half: ")
			}
			if n := s.descriptors(t); n > before+300 {
				t.Errorf("%d descriptors, from %d", n, before)
			}
		})
	})
	http.DefaultClient.CloseIdleConnections()
	if status, text := greedy.once("POST", "/exec", greedy.run("echo again"), nil); status != 200 {
		t.Errorf("the greedy tenant afterwards: %d %s", status, text)
	}
	if _, err := s.Limits.Limits(t.Context()); err != nil {
		t.Errorf("the operator: %v", err)
	}
}

func greedyStreams(t *testing.T, greedy, victim *tenant) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	got := greedy.crowd(20, func(int) int {
		r, err := http.NewRequestWithContext(ctx, "GET", greedy.s.URL()+"/v1/sandboxes/"+greedy.id+"/files/watch?path=/tmp", nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("Authorization", "Bearer "+greedy.key)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		if res.StatusCode != 200 {
			res.Body.Close()
		}
		return res.StatusCode
	})
	if got[200] != 6 || got[429] != 14 {
		t.Errorf("with 6 open streams allowed: %v", got)
	}
	if _, err := greedy.Exec.Terminal(t.Context(), greedy.id, bothy.TerminalRequest{}); bothy.ErrorCode(err) != bothy.CodeRateLimited {
		t.Errorf("a terminal beyond that: %v", err)
	}
	if status, text := greedy.once("POST", "/exec", greedy.run("echo plain"), nil); status != 200 {
		t.Errorf("a plain command: %d %s", status, text)
	}
	victim.lives(t, func() {
		term, err := victim.Exec.Terminal(t.Context(), victim.id, bothy.TerminalRequest{})
		if err != nil {
			t.Errorf("the victim's terminal: %v", err)
			return
		}
		term.Close()
	})
}
