package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/test/testserver"
)

// cdp is a client of a browser.
type cdp struct {
	*websocket.Conn
	t  *testing.T
	id int
}

// dialCDP connects to a browser by the address of a link, in one of its two forms, as clients do.
func dialCDP(t *testing.T, link string, byVersion bool) *cdp {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	address := "ws" + strings.TrimPrefix(link, "http")
	if byVersion {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, link+"/json/version/", nil)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		var v struct{ WebSocketDebuggerURL string }
		if err := json.Unmarshal(text, &v); err != nil || !strings.HasPrefix(v.WebSocketDebuggerURL, address+"/devtools/browser/") {
			t.Fatalf("%s, %v", text, err)
		}
		address = v.WebSocketDebuggerURL
	}
	ws, _, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://elsewhere.example"}}})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(64 << 20)
	t.Cleanup(func() { ws.CloseNow() })
	return &cdp{ws, t, 0}
}

// call calls a method, and returns its result.
func (c *cdp) call(session, method string, params any) (result json.RawMessage) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), hangs)
	defer cancel()
	c.id++
	data, _ := json.Marshal(map[string]any{"id": c.id, "method": method, "params": params, "sessionId": session})
	if session == "" {
		data, _ = json.Marshal(map[string]any{"id": c.id, "method": method, "params": params})
	}
	if err := c.Write(ctx, websocket.MessageText, data); err != nil {
		c.t.Fatal(err)
	}
	for {
		_, text, err := c.Read(ctx)
		if err != nil {
			c.t.Fatal(err)
		}
		var m struct {
			ID            int
			Result, Error json.RawMessage
		}
		if err := json.Unmarshal(text, &m); err != nil || m.Error != nil {
			c.t.Fatalf("%s: %s", method, text)
		}
		if m.ID == c.id {
			return m.Result
		}
	}
}

func (b *box) browserLink() (string, error) {
	link, err := b.s.Links.CreateLink(b.ctx, b.id, bothy.LinkCreate{Port: 9222, Kind: bothy.LinkCDP})
	if err != nil {
		return "", err
	}
	return link.URL, nil
}

func TestAddressOfABrowser(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	if _, err := b.browserLink(); bothy.ErrorCode(err) != bothy.CodeConflict || !strings.Contains(err.Error(), "no browser") {
		t.Errorf("without a browser: %v", err)
	}
	if res := b.python("", "cdp.py"); res.ExitCode != 0 {
		t.Fatal(res.Stderr)
	}
	link, err := b.browserLink()
	if err != nil {
		t.Fatal(err)
	}
	for _, byVersion := range []bool{true, false} {
		c := dialCDP(t, link, byVersion)
		if err := c.Write(b.ctx, websocket.MessageText, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(b.ctx); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// TestBrowser builds the template browser, with its 290 MB of packages.
func TestBrowser(t *testing.T) {
	if os.Getenv("BOTHY_TEST_LONG") == "" {
		t.Skip("builds a large template; BOTHY_TEST_LONG=1 runs it")
	}
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "template", "build", "browser")
	cmd.Env = append(os.Environ(), "BOTHY_URL="+shared.URL(), "BOTHY_API_KEY="+shared.Key)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := newBrowser(t)
	link, err := b.browserLink()
	if err != nil {
		t.Fatal(err)
	}
	c := dialCDP(t, link, true)
	title := func(c *cdp) string {
		var target struct{ TargetID string }
		_ = json.Unmarshal(c.call("", "Target.createTarget", map[string]any{"url": "about:blank"}), &target)
		var session struct{ SessionID string }
		_ = json.Unmarshal(c.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}), &session)
		return string(c.call(session.SessionID, "Runtime.evaluate", map[string]any{"expression": "document.title='six times ' + 6*7"}))
	}
	if got := title(c); !strings.Contains(got, "six times 42") {
		t.Error(got)
	}
	// Each page has a user namespace and a filter of system calls of its own. (The brackets keep the shell out.)
	const confined = `for p in $(pgrep -f -- '[-]-type=renderer'); do
		grep -q '^Seccomp:.*2' /proc/$p/status && [ "$(readlink /proc/$p/ns/user)" != "$(readlink /proc/1/ns/user)" ] || echo $p; done`
	if got := b.sh("root", confined); got != "" {
		t.Errorf("renderers without Chromium's sandbox: %s", got)
	}
	c.call("", "Storage.setCookies", map[string]any{"cookies": []any{map[string]any{"name": "login", "value": "yes", "domain": "example.com", "path": "/"}}})
	began := time.Now()
	copies, err := b.s.Snapshots.Fork(b.ctx, b.id, bothy.ForkRequest{Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("three forks in %v", time.Since(began))
	for _, sb := range copies {
		k := &box{t, shared, t.Context(), sb.ID}
		t.Cleanup(func() { _ = k.s.Sandboxes.Terminate(context.Background(), k.id) })
		link, err := k.browserLink()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(dialCDP(t, link, false).call("", "Storage.getCookies", nil)); !strings.Contains(got, `"login"`) {
			t.Errorf("a fork has the cookies %s", got)
		}
	}
	t.Logf("they answer after %v", time.Since(began))
	// A client may close the browser, which is there again, at the same address.
	_ = c.Write(b.ctx, websocket.MessageText, fmt.Appendf(nil, `{"id":%d,"method":"Browser.close"}`, c.id+1))
	for err == nil {
		_, _, err = c.Read(b.ctx)
	}
	for deadline := time.Now().Add(hangs); ; time.Sleep(50 * time.Millisecond) {
		if _, err = b.browserLink(); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if got := title(dialCDP(t, link, false)); !strings.Contains(got, "six times 42") {
		t.Error(got)
	}
}

func newBrowser(t *testing.T) *box {
	t.Helper()
	sb, err := shared.create(t.Context(), bothy.SandboxCreate{Template: "browser", MemoryMB: 2048, DiskMB: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shared.Sandboxes.Terminate(context.Background(), sb.ID) })
	return &box{t, shared, t.Context(), sb.ID}
}
