package gateway

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// newWeb is a lab with an allowed and an evil host at the same address, as in a large content
// delivery network. Both speak TLS on port 443 and HTTP on port 80.
func newWeb(t testing.TB, change ...func(*Options)) *lab {
	l := newLab(t, change...)
	ca := newAuthority(t)
	l.net.name("good.example", "5.6.7.8")
	l.net.name("evil.example", "5.6.7.8")
	l.net.serve("5.6.7.8:443", echoTLS(t, ca))
	l.net.serve("5.6.7.8:80", serveHTTP(sayHost))
	return l
}

func sayHost(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %d", r.Host, r.URL.Path, len(b))
}

// oneListener is a listener with one connection.
type oneListener struct {
	c    chan net.Conn
	addr net.Addr
	done chan struct{}
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.c:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *oneListener) Close() error   { return nil }
func (l *oneListener) Addr() net.Addr { return l.addr }

// serveHTTP serves one connection with a handler.
func serveHTTP(h http.HandlerFunc) func(net.Conn) {
	return func(c net.Conn) {
		l := &oneListener{c: make(chan net.Conn, 1), addr: c.LocalAddr(), done: make(chan struct{})}
		var once bool
		srv := &http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) {
			if (s == http.StateClosed || s == http.StateHijacked) && !once {
				once = true
				close(l.done)
			}
		}}
		l.c <- c
		_ = srv.Serve(l)
	}
}

// exchange sends bytes to a port of a name and returns everything that comes back.
func (l *lab) exchange(name string, port int, send string) (string, error) {
	c, err := l.dialName(name, port)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(hangs))
	if _, err := io.WriteString(c, send); err != nil {
		return "", err
	}
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	b, err := io.ReadAll(c)
	return string(b), err
}

func get(host, path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
}

func TestNamedHostIsReachedOverTLSAndHTTP(t *testing.T) {
	l := newWeb(t)
	l.policy(only("good.example"))
	c, err := l.dialName("good.example", 443)
	if err != nil {
		t.Fatal(err)
	}
	if err := pingTLS(c, "good.example"); err != nil {
		t.Fatal(err)
	}
	got, err := l.exchange("good.example", 80, get("GOOD.example:80", "/a")+get("good.example.", "/b"))
	if err != nil || !strings.Contains(got, " /a 0") || !strings.Contains(got, " /b 0") {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestHTTPBodiesPassWhole(t *testing.T) {
	l := newWeb(t)
	l.policy(only("good.example"))
	body := strings.Repeat("x", 300_000)
	var chunked strings.Builder
	w := newChunks(&chunked)
	for i := 0; i < len(body); i += 7001 {
		w.write(body[i:min(i+7001, len(body))])
	}
	w.close("X-Sum: 1\r\n")
	requests := "POST /length HTTP/1.1\r\nHost: good.example\r\nContent-Length: 300000\r\n\r\n" + body +
		"POST /chunked HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: Chunked\r\nTrailer: X-Sum\r\n\r\n" + chunked.String() +
		get("good.example", "/end")
	got, err := l.exchange("good.example", 80, requests)
	for _, want := range []string{" /length 300000", " /chunked 300000", " /end 0"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q (%v)", want, got, err)
		}
	}
}

type chunks struct{ w io.Writer }

func newChunks(w io.Writer) *chunks { return &chunks{w} }
func (c *chunks) write(s string)    { fmt.Fprintf(c.w, "%X ;ext=1\r\n%s\r\n", len(s), s) }
func (c *chunks) close(t string)    { fmt.Fprintf(c.w, "0\r\n%s\r\n", t) }

func TestWebSocketPassesOnceTheServerUpgrades(t *testing.T) {
	l := newWeb(t)
	l.net.name("ws.example", "5.6.7.9")
	l.net.serve("5.6.7.9:80", serveHTTP(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			sayHost(w, r)
			return
		}
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.CopyN(c, rw, 5)
			c.Close()
		}
	}))
	l.policy(only("ws.example"))
	ask := func(path string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: ws.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	}
	got, err := l.exchange("ws.example", 80, ask("/ws")+"\x00\x01\x02\x03\x04")
	if !strings.HasPrefix(got, "HTTP/1.1 101") || !strings.HasSuffix(got, "\x00\x01\x02\x03\x04") {
		t.Errorf("got %q, %v", got, err)
	}
	got, err = l.exchange("ws.example", 80, ask("/no")+get("evil.example", "/smuggled"))
	if strings.Contains(got, "/smuggled") {
		t.Errorf("a request to another host passed after an upgrade that the server ignored: %q, %v", got, err)
	}
}

func TestRefusedHTTPSaysWhy(t *testing.T) {
	l := newWeb(t)
	l.policy(only("good.example"))
	got, err := l.exchange("good.example", 80, get("evil.example", "/"))
	if err != nil || !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "evil.example") {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestServerMaySpeakFirstOnAnAllowedPort(t *testing.T) {
	l := newLab(t)
	l.net.name("ssh.example", "5.6.7.8")
	l.net.serve("5.6.7.8:22", func(c net.Conn) {
		defer c.Close()
		_, _ = io.WriteString(c, "SSH-2.0-test\r\n")
		echo(c)
	})
	l.policy(bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"ssh.example"}, AllowPorts: []uint16{22}})
	c, err := l.dialName("ssh.example", 22)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(hangs))
	if line, err := bufio.NewReaderSize(c, 16).ReadString('\n'); err != nil || line != "SSH-2.0-test\r\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if err := ping(c, "SSH-2.0-client\r\n"); err != nil {
		t.Fatal(err)
	}
}

func TestResumedSandboxKeepsItsStandIns(t *testing.T) {
	l := newWeb(t)
	l.policy(only("good.example"))
	// An address that an earlier gateway gave out before the sandbox was paused.
	const old = "198.19.7.7"
	c := l.mustDial(old + ":443")
	if err := pingTLS(c, "good.example"); err != nil {
		t.Errorf("an allowed name at an old stand-in: %v", err)
	}
	c = l.mustDial(old + ":443")
	if err := pingTLS(c, "evil.example"); err == nil {
		t.Error("a refused name passed at an old stand-in")
	}
	if _, err := l.dial(old + ":22"); err == nil {
		t.Error("an old stand-in was reached on a port whose protocol carries no name")
	}
}

func TestClientHelloMayArriveInPieces(t *testing.T) {
	l := newWeb(t)
	l.policy(only("good.example"))
	for _, sni := range []string{"good.example", "evil.example"} {
		c, err := l.dialName("good.example", 443)
		if err != nil {
			t.Fatal(err)
		}
		err = pingTLS(&dribble{Conn: c, size: 7}, sni)
		if (err == nil) != (sni == "good.example") {
			t.Errorf("%s in small segments: %v", sni, err)
		}
		c, err = l.dialName("good.example", 443)
		if err != nil {
			t.Fatal(err)
		}
		err = pingTLS(&fragmenter{Conn: c, size: 11}, sni)
		if (err == nil) != (sni == "good.example") {
			t.Errorf("%s in small records: %v", sni, err)
		}
	}
}

// dribble sends its first bytes a few at a time.
type dribble struct {
	net.Conn
	size int
}

func (d *dribble) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m, err := d.Conn.Write(p[n:min(len(p), n+d.size)])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// fragmenter splits the first TLS record into many small ones.
type fragmenter struct {
	net.Conn
	size int
	done bool
}

func (f *fragmenter) Write(p []byte) (int, error) {
	if f.done {
		return f.Conn.Write(p)
	}
	f.done = true
	var b bytes.Buffer
	for rest := p[recordHeader:]; len(rest) > 0; {
		n := min(f.size, len(rest))
		b.Write([]byte{p[0], p[1], p[2], 0, byte(n)})
		b.Write(rest[:n])
		rest = rest[n:]
	}
	_, err := f.Conn.Write(b.Bytes())
	return len(p), err
}

func TestSilentConnectionEnds(t *testing.T) {
	l := newWeb(t)
	l.gateway.patience = 50 * time.Millisecond
	l.policy(only("good.example"))
	for _, first := range []string{"", "\x16\x03\x01\x02\x00", "GET / HT"} {
		c, err := l.dialName("good.example", 443)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, first)
		_ = c.SetDeadline(time.Now().Add(hangs))
		_, err = io.ReadAll(c)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Errorf("the gateway waits forever after %q", first)
		}
	}
}

func TestSecondClientHelloIsChecked(t *testing.T) {
	l := newWeb(t)
	l.net.name("retry.example", "5.6.7.9")
	got := make(chan []byte, 1)
	l.net.serve("5.6.7.9:443", func(c net.Conn) {
		defer c.Close()
		b, _ := io.ReadAll(c)
		got <- b
	})
	l.policy(only("retry.example"))
	for _, second := range []string{"retry.example", "evil.example"} {
		c, err := l.dialName("retry.example", 443)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(clientHello(t, "retry.example"))
		_, _ = c.Write([]byte{recordChangeCipher, 3, 3, 0, 1, 1})
		_, _ = c.Write(clientHello(t, second))
		_, _ = c.Write([]byte{23, 3, 3, 0, 4, 1, 2, 3, 4})
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
		b := <-got
		if passed := bytes.Contains(b, []byte{23, 3, 3, 0, 4, 1, 2, 3, 4}); passed != (second == "retry.example") {
			t.Errorf("a second ClientHello for %s: passed %v", second, passed)
		}
		if bytes.Contains(b, []byte("evil.example")) {
			t.Error("the name that is not allowed reached the server")
		}
	}
}

// clientHello returns a real ClientHello in its record.
func clientHello(t testing.TB, sni string) []byte {
	a, b := net.Pipe()
	defer a.Close()
	go func() { _ = tls.Client(b, &tls.Config{ServerName: sni, InsecureSkipVerify: true}).Handshake() }()
	buf := make([]byte, maxHello)
	n, err := a.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	for n < recordHeader+int(buf[3])<<8|int(buf[4]) {
		m, err := a.Read(buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	b.Close()
	return buf[:n]
}

// Some clients open connections speculatively and close them again. The log must not call that a
// refusal.
func TestConnectionWithoutDataIsNotLoggedAsRefused(t *testing.T) {
	l := newWeb(t)
	l.policy(only("good.example"))
	c, err := l.dialName("good.example", 443)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	var last bothy.NetworkDecision
	eventually(t, "the end is logged", func() bool {
		lines := l.gateway.Log(time.Time{})
		last = lines[len(lines)-1]
		return last.Closed
	})
	if !last.Allowed || last.Name != "good.example" || last.Rule != "domain:good.example" || last.Reason != "nothing was sent" || last.BytesOut != 0 {
		t.Errorf("the log says %+v", last)
	}
	c, err = l.dialName("good.example", 443)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte{recordHandshake})
	c.Close()
	eventually(t, "half a beginning is refused", func() bool {
		lines := l.gateway.Log(time.Time{})
		last = lines[len(lines)-1]
		return !last.Allowed
	})
}
