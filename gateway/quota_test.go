package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/miekg/dns"
)

// heap is how much memory is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// dialTLS opens an intercepted connection for HTTP/1.
func (v *vault) dialTLS(name string) (net.Conn, error) {
	c, err := v.dialName(name, 443)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(hangs))
	conn := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	return conn, conn.Handshake()
}

// TestHeadsOfInterceptedRequestsAreShort has connections begin heads that never end. They are cut
// off, and do not stay in memory.
func TestHeadsOfInterceptedRequestsAreShort(t *testing.T) {
	v := newVault(t)
	var head bytes.Buffer
	fmt.Fprint(&head, "GET / HTTP/1.1\r\nHost: api.example\r\n")
	for i := 0; head.Len() < 700<<10; i++ {
		fmt.Fprintf(&head, "%x:\r\n", i)
	}
	const conns = 24
	before := heap()
	var open []net.Conn
	for range conns {
		c, err := v.dialTLS("api.example")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(head.Bytes())
		open = append(open, c)
	}
	eventually(t, "unfinished heads hold less than a megabyte each", func() bool { return heap()-before < conns<<20 })
	for _, c := range open {
		answer, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 431 ") {
			t.Fatalf("a head of %d bytes is answered with %.60q", head.Len(), answer)
		}
	}
}

func TestInterceptedHeadsHaveFewFields(t *testing.T) {
	v := newVault(t)
	for _, http2 := range []bool{false, true} {
		client := v.client(http2)
		for fields, want := range map[int]int{maxFields / 2: 200, maxFields + 1: http.StatusRequestHeaderFieldsTooLarge} {
			r, _ := http.NewRequest("GET", "https://api.example/", nil)
			for i := range fields {
				r.Header[fmt.Sprintf("X-%d", i)] = []string{""}
			}
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("HTTP/2 %v: a request with %d fields is answered with %d", http2, fields, res.StatusCode)
			}
		}
		r, _ := http.NewRequest("GET", "https://api.example/", nil)
		r.Header.Set("X", strings.Repeat("x", 2*interceptedHead))
		if res, err := client.Do(r); err == nil && res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("HTTP/2 %v: a head of %d bytes is answered with %d", http2, 2*interceptedHead, res.StatusCode)
		}
	}
}

// TestAnswersHeadsAreShort has the host of a secret send a head that does not end well.
func TestAnswersHeadsAreShort(t *testing.T) {
	v := newVault(t)
	for what, head := range map[string]string{
		"long": "X: " + strings.Repeat("x", 2*interceptedHead) + "\r\n",
		"of many fields": func() string {
			var b strings.Builder
			for i := range maxFields + 1 {
				fmt.Fprintf(&b, "X-%d: \r\n", i)
			}
			return b.String()
		}(),
	} {
		conf := &tls.Config{Certificates: []tls.Certificate{v.ca.certificate(t, "api.example")}}
		v.net.serve("5.6.7.8:443", func(c net.Conn) {
			conn := tls.Server(c, conf)
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"+head+"\r\n")
		})
		if code, body := v.do(v.client(false), "https://api.example/"); code != http.StatusBadGateway {
			t.Errorf("an answer whose head is %s arrives as %d %.100s", what, code, body)
		}
	}
}

// TestUnreadAnswersAreBounded has a guest ask for much over one connection and read nothing.
func TestUnreadAnswersAreBounded(t *testing.T) {
	v := newVault(t)
	const requests = 24
	var sent atomic.Int64
	conf := &tls.Config{Certificates: []tls.Certificate{v.ca.certificate(t, "api.example")}, NextProtos: []string{"h2"}}
	over := make(chan struct{})
	v.net.serve("5.6.7.8:443", func(c net.Conn) {
		_ = (&http.Server{TLSConfig: conf.Clone(), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for b := make([]byte, 32<<10); ; {
				n, err := w.Write(b)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		})}).Serve(&singleListener{conn: tls.Server(c, conf), closed: over})
	})
	client := v.client(true)
	client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 64 << 10}
	for range requests {
		res, err := client.Get("https://api.example/")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
	}
	if got := settled(t, sent.Load); got > 8<<20 {
		t.Errorf("%d KB of answers that nobody reads were taken", got>>10)
	}
	close(over)
}

func TestInterceptedConnectionsAreFew(t *testing.T) {
	v := newVault(t)
	v.gateway.intercepted.most = 3
	var open []net.Conn
	for range 3 {
		c, err := v.dialTLS("api.example")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if _, err := v.dialTLS("api.example"); err == nil {
		t.Error("a connection too many was accepted")
	}
	if c, err := v.dialTLS("other.example"); err != nil {
		t.Errorf("a connection to a host without secrets: %v", err)
	} else {
		c.Close()
	}
	for _, c := range open {
		c.Close()
	}
	eventually(t, "all is given back", func() bool { return v.gateway.intercepted.held.Load() == 0 })
	if code, body := v.do(v.client(true), "https://api.example/"); code != 200 {
		t.Error(code, body)
	}
	told := false
	for _, d := range v.gateway.Log(time.Time{}) {
		told = told || strings.Contains(d.Reason, "too many connections to hosts with secrets")
	}
	if !told {
		t.Error("the refusal is not in the sandbox's log")
	}
}

// TestInterceptedRequestsAreFew sends more requests at once than a sandbox may have in flight,
// over several connections.
func TestInterceptedRequestsAreFew(t *testing.T) {
	v := newVault(t)
	const most, sent = 4, 12
	v.gateway.requests.most = most
	arrived, release := make(chan struct{}, sent), make(chan struct{})
	conf := &tls.Config{Certificates: []tls.Certificate{v.ca.certificate(t, "api.example")}, NextProtos: []string{"h2", "http/1.1"}}
	v.net.serve("5.6.7.8:443", func(c net.Conn) {
		_ = (&http.Server{TLSConfig: conf.Clone(), Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			arrived <- struct{}{}
			<-release
		})}).Serve(&singleListener{conn: tls.Server(c, conf), closed: release})
	})
	codes := make(chan int, sent)
	for i := range sent {
		client := v.client(i%2 == 0)
		go func() {
			r, _ := http.NewRequest("POST", "https://api.example/", strings.NewReader("x")) // which is not repeated
			res, err := client.Do(r)
			if err != nil {
				codes <- 0
				return
			}
			res.Body.Close()
			codes <- res.StatusCode
		}()
	}
	for range sent - most {
		if code := <-codes; code != 0 {
			t.Errorf("a request too many is answered with %d", code)
		}
	}
	for range most {
		<-arrived
	}
	close(release)
	for range most {
		if code := <-codes; code != 200 {
			t.Errorf("a request within the bound is answered with %d", code)
		}
	}
	eventually(t, "all is given back", func() bool { return v.gateway.requests.held.Load() == 0 })
}

// TestBeginningsAreAccounted has many connections begin what says their host, and not end it.
func TestBeginningsAreAccounted(t *testing.T) {
	l := newWeb(t)
	l.policy(only("good.example"))
	const room = 64 << 10
	l.gateway.heads.most = room
	begin := []byte("GET / HTTP/1.1\r\nHost: good.example\r\nX: " + strings.Repeat("x", 20<<10))
	var cut int
	var open []net.Conn
	for range 8 {
		c, err := l.dialName("good.example", 80)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(begin)
		open = append(open, c)
	}
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || !err.(net.Error).Timeout() {
			cut++
		}
	}
	if cut < 4 || cut == 8 {
		t.Errorf("%d of 8 unfinished requests of %d bytes are cut off where there is room for %d bytes", cut, len(begin), room)
	}
	if held := l.gateway.heads.held.Load(); held > room {
		t.Errorf("%d bytes are held", held)
	}
	for _, c := range open {
		c.Close()
	}
	eventually(t, "all is given back", func() bool { return l.gateway.heads.held.Load() == 0 })
	c, err := l.dialName("good.example", 80)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, string(begin)+"\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(hangs))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("a long head when there is room again: %v", err)
	}
}

// TestTrailersAreNotHeld sends a trailer whose end does not come: its lines are passed on.
func TestTrailersAreNotHeld(t *testing.T) {
	l := newLab(t)
	got := make(chan byte, 1)
	l.net.name("good.example", "5.6.7.8")
	l.net.serve("5.6.7.8:80", func(c net.Conn) {
		defer c.Close()
		b := make([]byte, 1)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			if b[0] == '!' {
				got <- b[0]
			}
		}
	})
	l.policy(only("good.example"))
	c, err := l.dialName("good.example", 80)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: !\r\n")
	select {
	case <-got:
	case <-time.After(10 * time.Second):
		t.Error("the first line of a trailer is held back")
	}
}

// TestQueriesOverTCPAreFew asks the resolver over many connections at once.
func TestQueriesOverTCPAreFew(t *testing.T) {
	slow := &slowResolver{release: make(chan struct{}), asked: make(chan struct{}, 4*maxQueries)}
	l := newLab(t, func(o *Options) { o.Resolver = slow })
	l.policy(open)
	for i := range maxQueries + 8 {
		c := l.mustDial("10.0.0.1:53")
		m := new(dns.Msg)
		m.SetQuestion(fmt.Sprintf("name%d.example.", i), dns.TypeA)
		if err := (&dns.Conn{Conn: c}).WriteMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	for range maxQueries {
		<-slow.asked
	}
	if n := len(l.gateway.queries); n != maxQueries {
		t.Errorf("%d queries are answered at once", n)
	}
	select {
	case <-slow.asked:
		t.Errorf("more than %d names are looked up at once", maxQueries)
	case <-time.After(100 * time.Millisecond):
	}
	close(slow.release)
}

// TestReasonsAreShort records what a host has said at length.
func TestReasonsAreShort(t *testing.T) {
	l := newDecisionLog(newManualClock())
	l.record(bothy.NetworkDecision{Reason: strings.Repeat("é", 1<<20)})
	if lines, _ := l.since(time.Time{}); len(lines) != 1 || len(lines[0].Reason) > maxReason+8 {
		t.Errorf("%d bytes", len(lines[0].Reason))
	}
}

// slowResolver answers when it is released.
type slowResolver struct{ release, asked chan struct{} }

func (r *slowResolver) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	r.asked <- struct{}{}
	select {
	case <-r.release:
	case <-ctx.Done():
	}
	return nil, &net.DNSError{Name: host, Err: "no such host", IsNotFound: true}
}
