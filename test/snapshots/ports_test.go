package snapshots

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// keeper is a server in the sandbox that keeps connections open. It answers with the number of the
// request's connection and of open connections.
const keeper = `
import http.server, itertools, threading
serial, here, lock = itertools.count(1), set(), threading.Lock()

class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.number = next(serial)
        with lock:
            here.add(self.number)

    def finish(self):
        with lock:
            here.discard(self.number)
        super().finish()

    def do_GET(self):
        body = f"{self.number} {len(here)}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("%s", 8000), Page).serve_forever()
`

// ask requests a page of the server through the API, and returns the number of the connection used and
// of those open.
func (b *box) ask() (number, open int, err error) {
	ctx, cancel := within(b.T)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.s.Address+"/v1/sandboxes/"+b.id+"/ports/8000/", nil)
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Authorization", "Bearer "+b.s.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	if err == nil {
		_, err = fmt.Sscan(string(page), &number, &open)
	}
	if err != nil {
		err = fmt.Errorf("%s %q: %w", res.Status, page, err)
	}
	return number, open, err
}

func (b *box) mustAsk() (number, open int) {
	b.Helper()
	number, open, err := b.ask()
	if err != nil {
		b.Fatal(err)
	}
	return number, open
}

// keeps starts the server outside of any command, and waits until two successive requests use the same
// connection: an idle one is closed after a second.
func (b *box) keeps(addr string) {
	b.Helper()
	b.sh("cat >/tmp/keeper.py <<'END'\n" + strings.Replace(keeper, "%s", addr, 1) + "END\n" +
		"setsid -f python3 /tmp/keeper.py </dev/null >/dev/null 2>&1")
	eventually(b.T, "serve", func() bool { _, _, err := b.ask(); return err == nil })
	eventually(b.T, "keep a connection", func() bool {
		first, _ := b.mustAsk()
		second, _ := b.mustAsk()
		return first == second
	})
}

func TestConnectionsToServersInsideAreKept(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"", "127.0.0.1"} { // through the network device, and through the guest
		t.Run("listening on "+addr, func(t *testing.T) {
			t.Parallel()
			b := shared.newBox(t, bothy.SandboxCreate{AutoResume: true})
			b.keeps(addr)
			m := b.copyOf()
			if _, open := m.mustAsk(); open != 1 {
				t.Errorf("%d connections are open in the copy, including those of the original", open)
			}
			b.mustAsk()
			b.pause()
			if _, open := b.mustAsk(); open != 1 {
				t.Errorf("%d connections are open after a pause, including those from before", open)
			}
			b.is(bothy.StateRunning)
		})
	}
}

// copyOf returns a fork that is made while a connection is idle.
func (b *box) copyOf() *box {
	b.Helper()
	b.mustAsk()
	return b.fork(1)[0]
}

func TestAKeptConnectionDoesNotPreventAPause(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{IdleSeconds: 2, AutoResume: true})
	b.keeps("")
	b.becomes(bothy.StatePaused)
	b.mustAsk()
	b.is(bothy.StateRunning)
}
