package snapshots

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// keeper is a server inside that keeps connections. It says which of its connections
// a request came over, and how many are open.
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

// ask gets a page of the server inside, over the API, and tells over which of the
// server's connections, and how many are open.
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

// keeps starts the server, which is no command, and waits until two requests in a
// row came over the same connection: one second is a long time, but not for ever.
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
	for _, addr := range []string{"", "127.0.0.1"} { // over the network device, and over the guest
		t.Run("listening on "+addr, func(t *testing.T) {
			t.Parallel()
			b := shared.newBox(t, bothy.SandboxCreate{AutoResume: true})
			b.keeps(addr)
			m := b.copyOf()
			if _, open := m.mustAsk(); open != 1 {
				t.Errorf("in the copy %d connections are open: those of the original among them", open)
			}
			b.mustAsk()
			b.pause()
			if _, open := b.mustAsk(); open != 1 {
				t.Errorf("after its sleep %d connections are open: those from before among them", open)
			}
			b.is(bothy.StateRunning)
		})
	}
}

// copyOf is a fork that is taken while a connection waits.
func (b *box) copyOf() *box {
	b.Helper()
	b.mustAsk()
	return b.fork(1)[0]
}

func TestAKeptConnectionLetsASandboxSleep(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{IdleSeconds: 2, AutoResume: true})
	b.keeps("")
	b.becomes(bothy.StatePaused)
	b.mustAsk()
	b.is(bothy.StateRunning)
}
