package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// send sends a request as a browser or an agent does, and returns the answer with its body unread.
func (s *server) send(ctx context.Context, t *testing.T, method, path, body string, header http.Header) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header.Clone()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// A load balancer may send each request of a browser to another host: links to the console, logins and
// logouts apply to all of them.
func TestAnyHostKnowsALogin(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()

	status, text := one.raw(t, http.MethodPost, "/console/link", "", http.Header{"Authorization": {"Bearer " + one.Key}})
	var link struct {
		Path string `json:"path"`
	}
	if status != http.StatusCreated || json.Unmarshal([]byte(text), &link) != nil {
		t.Fatalf("a link to the console: %d %s", status, text)
	}
	_, code, _ := strings.Cut(link.Path, "#code=")
	page := http.Header{"X-Bothy-Console": {"1"}, "Content-Type": {"application/json"}}
	res := two.send(ctx, t, http.MethodPost, "/console/session", fmt.Sprintf(`{"code":%q}`, code), page)
	if res.StatusCode != http.StatusCreated || len(res.Cookies()) != 1 {
		t.Fatalf("the link, at the other host: %s", res.Status)
	}
	for _, s := range hosts {
		if status, text := s.raw(t, http.MethodPost, "/console/session", fmt.Sprintf(`{"code":%q}`, code), page); status != http.StatusUnauthorized {
			t.Errorf("the link was used twice: %d %s", status, text)
		}
	}
	page.Set("Cookie", res.Cookies()[0].Name+"="+res.Cookies()[0].Value)
	b := one.newBox(t, bothy.SandboxCreate{MemoryMB: 64})
	for _, s := range hosts {
		for _, path := range []string{"/console/session", "/v1/sandboxes", "/v1/sandboxes/" + b.id + "/files?path=/"} {
			if status, text := s.raw(t, http.MethodGet, path, "", page); status != http.StatusOK {
				t.Errorf("%s with the login at %s: %d %s", path, s.Address, status, text)
			}
		}
	}
	following := page.Clone()
	following.Set("Accept", "text/event-stream")
	stream := two.send(ctx, t, http.MethodGet, "/v1/events", "", following)
	if stream.StatusCode != http.StatusOK {
		t.Fatalf("following events: %s", stream.Status)
	}
	if status, text := one.raw(t, http.MethodDelete, "/console/session", "", page); status != http.StatusNoContent {
		t.Fatalf("logging out: %d %s", status, text)
	}
	if _, err := io.Copy(io.Discard, stream.Body); ctx.Err() != nil {
		t.Errorf("a stream that was opened at the other host continues: %v", err)
	}
	for _, s := range hosts {
		if status, text := s.raw(t, http.MethodGet, "/v1/sandboxes", "", page); status != http.StatusUnauthorized {
			t.Errorf("the login at %s after logging out: %d %s", s.Address, status, text)
		}
	}
}

// agent is a client of an MCP revision that has sessions.
type agent struct {
	*testing.T
	ctx     context.Context
	session string
	id      int
}

func (a *agent) header(s *server) http.Header {
	h := http.Header{
		"Authorization": {"Bearer " + s.Key}, "Content-Type": {"application/json"},
		"Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-06-18"},
	}
	if a.session != "" {
		h.Set("Mcp-Session-Id", a.session)
	}
	return h
}

// call sends a request to a host, and returns the result.
func (a *agent) call(s *server, method, params string) string {
	a.Helper()
	a.id++
	res := s.send(a.ctx, a.T, http.MethodPost, "/api/sandboxes/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, a.id, method, params), a.header(s))
	if id := res.Header.Get("Mcp-Session-Id"); method == "initialize" {
		a.session = id
	}
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		a.Fatalf("%s at %s: %s %s %v", method, s.Address, res.Status, text, err)
	}
	for line := range strings.Lines(string(text)) {
		data, ok := strings.CutPrefix(line, "data: ")
		var m struct {
			ID     int
			Result json.RawMessage
		}
		if ok && json.Unmarshal([]byte(data), &m) == nil && m.ID == a.id && m.Result != nil {
			return string(m.Result)
		}
	}
	a.Fatalf("%s at %s: %s", method, s.Address, text)
	return ""
}

// The messages of a session may go to any host, even after the host that began it was restarted or
// lost.
func TestAnyHostContinuesTheSessionOfAnAgent(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	ctx, cancel := context.WithTimeout(t.Context(), 2*hangs)
	defer cancel()
	a := &agent{T: t, ctx: ctx}
	a.call(one, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if a.session == "" {
		t.Fatal("the answer has no session id")
	}
	if res := two.send(ctx, t, http.MethodPost, "/api/sandboxes/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, a.header(two)); res.StatusCode != http.StatusAccepted {
		t.Fatalf("a notification to the other host: %s", res.Status)
	}
	here, there := one.boxOn(t, "one", smallest), two.boxOn(t, "two", smallest)
	works := func(hosts []*server, boxes ...*box) {
		t.Helper()
		for _, s := range hosts {
			if tools := a.call(s, "tools/list", `{}`); !strings.Contains(tools, `"run_shell"`) {
				t.Errorf("the tools at %s: %s", s.Address, tools)
			}
			for _, b := range boxes {
				if out := a.call(s, "tools/call", fmt.Sprintf(`{"name":"run_shell","arguments":{"sandbox_id":%q,"command":"echo $((6*7))"}}`, b.id)); !strings.Contains(out, `42\n`) {
					t.Errorf("a command at %s: %s", s.Address, out)
				}
			}
		}
	}
	works(hosts, here, there)
	follow, stop := context.WithCancel(ctx)
	header := a.header(two)
	header.Set("Accept", "text/event-stream")
	if stream := two.send(follow, t, http.MethodGet, "/api/sandboxes/mcp", "", header); stream.StatusCode != http.StatusOK {
		t.Errorf("the session's stream, at the other host: %s", stream.Status)
	}
	stop()
	// The key of another project cannot use it.
	other, err := one.Tokens.CreateToken(ctx, bothy.TokenCreate{Scopes: bothy.AllScopes})
	if err != nil {
		t.Fatal(err)
	}
	header = a.header(two)
	header.Set("Authorization", "Bearer "+other.Key)
	if res := two.send(ctx, t, http.MethodPost, "/api/sandboxes/mcp", `{"jsonrpc":"2.0","id":1000,"method":"tools/list","params":{}}`, header); res.StatusCode != http.StatusForbidden {
		t.Errorf("the session with another key: %s", res.Status)
	}

	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	// A message in flight when the host died may have been handled, and is refused.
	eventually(t, "the other host answers in the place of one that is unavailable", func() bool {
		return two.send(ctx, t, http.MethodPost, "/api/sandboxes/mcp", `{"jsonrpc":"2.0","id":2000,"method":"tools/list","params":{}}`, a.header(two)).StatusCode == http.StatusOK
	})
	works(hosts[1:], there)
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	works(hosts, here, there)

	b := &agent{T: t, ctx: ctx}
	b.call(one, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if res := two.send(ctx, t, http.MethodDelete, "/api/sandboxes/mcp", "", b.header(two)); res.StatusCode != http.StatusNoContent {
		t.Errorf("ending a session at the other host: %s", res.Status)
	}
	for _, s := range hosts {
		if res := s.send(ctx, t, http.MethodPost, "/api/sandboxes/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, b.header(s)); res.StatusCode != http.StatusNotFound {
			t.Errorf("an ended session at %s: %s", s.Address, res.Status)
		}
	}
}

// The limits of a plan apply to all hosts together, even to concurrent requests.
func TestHostsCountAPlanTogether(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two")
	ctx, cancel := context.WithTimeout(t.Context(), 2*hangs)
	defer cancel()
	if _, err := hosts[0].Projects.CreateProject(ctx, bothy.ProjectCreate{ID: "small", Plan: bothy.PlanPro}); err != nil {
		t.Fatal(err)
	}
	key, err := hosts[0].Tokens.CreateToken(ctx, bothy.TokenCreate{ProjectID: "small", Scopes: bothy.AllScopes})
	if err != nil {
		t.Fatal(err)
	}
	var doors []*client.Client
	for _, s := range hosts {
		doors = append(doors, client.New(s.URL(), key.Key))
	}
	defer func() {
		all, err := doors[0].Sandboxes.List(ctx, bothy.SandboxFilter{})
		for _, sb := range all.Items {
			err = errors.Join(err, doors[0].Sandboxes.Terminate(ctx, sb.ID))
		}
		if err != nil {
			t.Error(err)
		}
	}()
	most := *bothy.Plans[bothy.PlanPro].Sandboxes
	var mu sync.Mutex
	var made []string
	together := func(n int, do func(c *client.Client, i int) (string, error)) (done, refused int) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				id, err := do(doors[i%len(doors)], i)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					done++
					if id != "" {
						made = append(made, id)
					}
				case bothy.ErrorCode(err) == bothy.CodeQuota && strings.Contains(err.Error(), "the plan pro"):
					refused++
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return done, refused
	}
	create := func(c *client.Client, _ int) (string, error) {
		sb, err := c.Sandboxes.Create(ctx, bothy.SandboxCreate{Template: templateName, MemoryMB: 64})
		if err != nil {
			return "", err
		}
		return sb.ID, nil
	}
	if done, refused := together(2*most, create); done != most || refused != most {
		t.Fatalf("%d were created and %d refused, but the plan allows %d", done, refused, most)
	}
	list, err := doors[0].Sandboxes.List(ctx, bothy.SandboxFilter{})
	if err != nil || len(list.Items) != most {
		t.Errorf("%d are listed, including refused ones: %v", len(list.Items), err)
	}
	// Paused sandboxes do not count, and concurrent resumes do not exceed the limit.
	for _, id := range made {
		if _, err := doors[1].Snapshots.Pause(ctx, id, bothy.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	first := made
	made = nil
	if done, refused := together(most-2, create); done != most-2 || refused != 0 {
		t.Fatalf("%d were created and %d refused while all others are paused", done, refused)
	}
	done, refused := together(len(first), func(c *client.Client, i int) (string, error) {
		_, err := c.Snapshots.Resume(ctx, first[i], bothy.ResumeOptions{})
		return "", err
	})
	if done != 2 || refused != most-2 {
		t.Errorf("%d were resumed and %d refused, but there was room for 2", done, refused)
	}
	for i, c := range doors {
		if l, err := c.Limits.Limits(ctx); err != nil || l.Sandboxes.Used != most {
			t.Errorf("the limits at host %d: %+v, %v", i, l, err)
		}
	}
}
