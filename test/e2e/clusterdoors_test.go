package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

// agent calls a tool as an MCP client does.
func (s *server) agent(t *testing.T, tool string, args map[string]any) *sdk.CallToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: s.URL() + "/api/sandboxes/mcp", HTTPClient: &http.Client{Transport: keyed{s.Key}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	r, err := session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A sandbox can be used through a host that does not have it: terminals, ports, links, streams, large
// files, agents and E2B's SDKs.
func TestAnyHostForwardsRequestsForASandbox(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.newBox(t, bothy.SandboxCreate{MemoryMB: 256, DiskMB: 512})
	there := b.at(two)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()

	t.Run("a terminal", func(t *testing.T) {
		term, err := two.Exec.Terminal(ctx, b.id, bothy.TerminalRequest{Cols: 80, Rows: 24})
		if err != nil {
			t.Fatal(err)
		}
		defer term.Close()
		if err := term.Resize(100, 40); err != nil {
			t.Error(err)
		}
		if _, err := io.WriteString(term, "echo $((6*7))-$((7*7)); exit 3\n"); err != nil {
			t.Fatal(err)
		}
		out, _ := io.ReadAll(term)
		if code, err := term.Wait(); code != 3 || err != nil || !strings.Contains(string(out), "42-49") {
			t.Errorf("exit code %d, %v: %q", code, err, out)
		}
	})

	there.sh("", "mkdir -p /tmp/www && echo served >/tmp/www/page && cd /tmp/www && setsid -f python3 -m http.server 8000 >/dev/null 2>&1 </dev/null")
	there.sh("", "for i in $(seq 200); do (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null && exit 0; sleep 0.05; done; exit 1")

	t.Run("a port", func(t *testing.T) {
		c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return two.Ports.DialPort(ctx, b.id, 8000)
		}}}
		defer c.CloseIdleConnections()
		if got := fetch(t, c, "http://sandbox/page"); got != "served\n" {
			t.Errorf("the server in the sandbox answers %q", got)
		}
	})

	t.Run("SSH", func(t *testing.T) {
		var keys []string
		for _, s := range hosts {
			c, key, err := s.Ports.DialSSH(ctx, b.id, "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			hello := make([]byte, len("SSH-2.0-"))
			if _, err := io.ReadFull(c, hello); err != nil || string(hello) != "SSH-2.0-" {
				t.Errorf("the server says %q, %v", hello, err)
			}
			keys = append(keys, key)
		}
		if keys[0] == "" || keys[0] != keys[1] {
			t.Errorf("the hosts name the host keys %q", keys)
		}
	})

	t.Run("a link", func(t *testing.T) {
		link, err := one.Links.CreateLink(ctx, b.id, bothy.LinkCreate{Port: 8000})
		if err != nil {
			t.Fatal(err)
		}
		// The other host serves the link under either name.
		c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, two.Address)
		}}, Jar: newJar(t)}
		defer c.CloseIdleConnections()
		at, key, _ := strings.Cut(link.URL, "?")
		if got := fetch(t, c, strings.TrimSuffix(at, "/")+"/page?"+key); got != "served\n" {
			t.Errorf("the link %s leads to %q", link.URL, got)
		}
		if err := two.Links.DeleteLink(ctx, b.id, link.ID); err != nil {
			t.Error(err)
		}
		if res, err := c.Get(strings.TrimSuffix(at, "/") + "/page?" + key); err != nil || res.StatusCode < 400 {
			t.Errorf("a link that was deleted: %v %v", res, err)
		}
	})

	t.Run("a stream", func(t *testing.T) {
		// The second part is sent only after the first has arrived.
		var seen []string
		err := two.Exec.ExecStream(ctx, b.id, line("", "echo first; until [ -e /tmp/seen ]; do sleep 0.05; done; echo second; exit 5"), func(e bothy.ExecEvent) error {
			if text := strings.TrimSpace(e.Data); text != "" {
				seen = append(seen, text)
			}
			if len(seen) == 1 && !e.IsFinal {
				b.sh("", "touch /tmp/seen")
			}
			if e.IsFinal {
				seen = append(seen, fmt.Sprint(e.ExitCode))
			}
			return nil
		})
		if got := strings.Join(seen, " "); err != nil || got != "first second 5" {
			t.Errorf("%q, %v", got, err)
		}
	})

	t.Run("events", func(t *testing.T) {
		last, err := two.Events.LastEvent(ctx)
		if err != nil {
			t.Fatal(err)
		}
		name := "renamed"
		if _, err := one.Sandboxes.Update(ctx, b.id, bothy.SandboxUpdate{Name: &name}); err != nil {
			t.Fatal(err)
		}
		found := fmt.Errorf("found")
		err = two.Events.Events(ctx, bothy.EventFilter{SandboxID: b.id, Since: last, Follow: true}, func(e bothy.Event) error {
			if e.Type == bothy.EventSandboxUpdated {
				return found
			}
			return nil
		})
		if err != found {
			t.Errorf("events at the other host: %v", err)
		}
	})

	t.Run("large files", func(t *testing.T) {
		content := make([]byte, 40<<20+7)
		rand.Read(content)
		for what, size := range map[string]int64{"of a known size": int64(len(content)), "of an unknown size": 0} {
			if err := there.uploadSized("data", io.MultiReader(bytes.NewReader(content)), size); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got := there.download("/workspace/data"); got != string(content) {
				t.Errorf("%s: %d bytes come back, or different ones", what, len(got))
			}
		}
	})

	t.Run("an agent", func(t *testing.T) {
		r := two.agent(t, "run_shell", map[string]any{"sandbox_id": b.id, "command": "echo hello"})
		if r.IsError {
			t.Fatalf("%+v", r)
		}
		if out := r.StructuredContent.(map[string]any); out["stdout"] != "hello\n" {
			t.Errorf("got %v", out)
		}
	})

	t.Run("E2B's SDKs", func(t *testing.T) {
		status, text := two.raw(t, http.MethodPost, "/sandboxes/"+b.id+"/timeout", `{"timeout": 900}`, http.Header{"X-Api-Key": {"e2b_" + strings.TrimPrefix(two.Key, "bothy_")}, "Content-Type": {"application/json"}})
		if status != http.StatusNoContent {
			t.Errorf("the time-out: %d %s", status, text)
		}
		status, text = one.raw(t, http.MethodPost, "/sandboxes", `{"templateID": "`+templateName+`"}`, http.Header{"X-Api-Key": {one.Key}, "Content-Type": {"application/json"}})
		var made struct {
			SandboxID string `json:"sandboxID"`
			Token     string `json:"envdAccessToken"`
		}
		if status != http.StatusCreated || json.Unmarshal([]byte(text), &made) != nil {
			t.Fatalf("a new sandbox: %d %s", status, text)
		}
		defer one.Sandboxes.Terminate(ctx, made.SandboxID)
		for _, s := range hosts {
			to := http.Header{"E2b-Sandbox-Id": {made.SandboxID}, "E2b-Sandbox-Port": {"49983"}, "X-Access-Token": {made.Token}}
			if status, text := s.raw(t, http.MethodGet, "/health", "", to); status != http.StatusNoContent {
				t.Errorf("its health: %d %s", status, text)
			}
			var form bytes.Buffer
			m := multipart.NewWriter(&form)
			part, err := m.CreateFormFile("file", "note")
			if err == nil {
				_, err = io.WriteString(part, "content of "+s.Address)
			}
			if err != nil || m.Close() != nil {
				t.Fatal(err)
			}
			to.Set("Content-Type", m.FormDataContentType())
			if status, text := s.raw(t, http.MethodPost, "/files?path=/home/user/note&username=user", form.String(), to); status != http.StatusOK {
				t.Errorf("a file: %d %s", status, text)
			}
			if status, text := s.raw(t, http.MethodGet, "/files?path=/home/user/note&username=user", "", to); status != http.StatusOK || text != "content of "+s.Address {
				t.Errorf("the file: %d %s", status, text)
			}
		}
	})
}

// raw sends a request to a server without using the client.
func (s *server) raw(t *testing.T, method, path, body string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func fetch(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	res, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func newJar(t *testing.T) http.CookieJar {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return jar
}
