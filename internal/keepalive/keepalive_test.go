package keepalive_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy/internal/keepalive"
)

func echoPath(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) }

func TestAConnectionIsKeptUntilItIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, echoPath)
		pool := keepalive.NewPool(clock{})
		m := machine(t, pool, map[uint16]*port{80: p})
		for i := range 5 {
			wantFetch(t, m, 80, fmt.Sprint("/", i), fmt.Sprint("/", i))
			time.Sleep(900 * time.Millisecond)
		}
		p.wantDials(t, 1)
		if pool.Idle() != 1 {
			t.Errorf("%d are idle", pool.Idle())
		}
		time.Sleep(200 * time.Millisecond)
		if pool.Idle() != 0 {
			t.Error("an unneeded connection is kept")
		}
		wantFetch(t, m, 80, "/again", "/again")
		p.wantDials(t, 2)
		m.Close()
		if pool.Idle() != 0 {
			t.Error("it outlives its machine")
		}
		wantFetch(t, m, 80, "/after", "/after")
		if pool.Idle() != 0 {
			t.Error("one is kept after the machine's end")
		}
	})
}

// Machines may have equal ids and ports; connections belong to a machine.
func TestConnectionsAreNotMixedUp(t *testing.T) {
	pool := keepalive.NewPool(clock{})
	var wait sync.WaitGroup
	for i := range 4 {
		ports := map[uint16]*port{}
		for n := range uint16(3) {
			name := fmt.Sprintf("machine %d, port %d", i, n)
			ports[n] = serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, name+" "+r.URL.Path) })
		}
		m := machine(t, pool, ports)
		for n := range uint16(3) {
			for range 4 {
				wait.Go(func() {
					for k := range 100 {
						want := fmt.Sprintf("machine %d, port %d /%d", i, n, k)
						if got, err := fetch(t.Context(), m, n, fmt.Sprint("/", k)); err != nil || got != want {
							t.Errorf("got %q, %v; want %q", got, err, want)
							return
						}
						if k%10 == 0 {
							m.CloseIdle()
						}
					}
				})
			}
		}
	}
	wait.Wait()
}

// No request is lost to a connection that the server has closed, whenever it does so.
func TestAServerMayCloseWhenItLikes(t *testing.T) {
	for name, f := range map[string]func(c net.Conn, requests func() *http.Request){
		"after each answer, without a word": func(c net.Conn, requests func() *http.Request) {
			requests()
			io.WriteString(c, answer)
		},
		"when it has the second request": func(c net.Conn, requests func() *http.Request) {
			requests()
			io.WriteString(c, answer)
			requests()
		},
		"in the midst of a header": func(c net.Conn, requests func() *http.Request) {
			requests()
			io.WriteString(c, answer)
			requests()
			io.WriteString(c, answer[:20])
		},
		"with a word that answers nothing": func(c net.Conn, requests func() *http.Request) {
			requests()
			io.WriteString(c, answer)
			requests()
			io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		},
		"after more than it has promised": func(c net.Conn, requests func() *http.Request) {
			for requests() != nil {
				io.WriteString(c, answer+"and more")
			}
		},
		"after more, a moment later": func(c net.Conn, requests func() *http.Request) {
			for requests() != nil {
				io.WriteString(c, answer)
				io.WriteString(c, "garbage\r\n\r\n")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := raw(t, f)
			m := one(t, p)
			var wait sync.WaitGroup
			for range 4 {
				wait.Go(func() {
					for range 50 {
						if got, err := fetch(t.Context(), m, 80, "/"); err != nil || got != "ok" {
							t.Errorf("%q, %v", got, err)
							return
						}
					}
				})
			}
			wait.Wait()
		})
	}
}

// A failure on a new connection is returned.
func TestFailuresAreReturned(t *testing.T) {
	long := "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", keepalive.MaxHeader) + "\r\n\r\n"
	for say, want := range map[string]string{
		"":                 "EOF",
		"220 mail\r\n\r\n": "malformed",
		answer[:20]:        "malformed",
		long:               "longer than",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n":                         "another protocol",
		strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", 50_000): "longer than",
	} {
		p := raw(t, func(c net.Conn, requests func() *http.Request) {
			requests()
			io.WriteString(c, say)
		})
		if _, err := fetch(t.Context(), one(t, p), 80, "/"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", say, err, want)
		}
		p.wantDials(t, 1)
	}
	if _, err := fetch(t.Context(), one(t, newPort(t)), 81, "/"); err == nil || !strings.Contains(err.Error(), "nothing listens on 81") {
		t.Error(err)
	}
}

func TestInformationalAnswersArePassedOn(t *testing.T) {
	p := raw(t, func(c net.Conn, requests func() *http.Request) {
		requests()
		io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"+answer)
	})
	var hint string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		hint = fmt.Sprint(code, h.Get("Link"))
		return nil
	}})
	if got, err := fetch(ctx, one(t, p), 80, "/"); err != nil || got != "ok" || hint != "103</a.css>" {
		t.Errorf("%q, %v, hint %q", got, err, hint)
	}
}

// Servers that close connections or speak HTTP/1.0 get a new connection for each request.
func TestUnkeepableConnectionsAreNotKept(t *testing.T) {
	for _, head := range []string{
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n",
	} {
		p := raw(t, func(c net.Conn, requests func() *http.Request) {
			requests()
			io.WriteString(c, head+"ok")
		})
		pool := keepalive.NewPool(clock{})
		m := machine(t, pool, map[uint16]*port{80: p})
		for range 3 {
			wantFetch(t, m, 80, "/", "ok")
			if pool.Idle() != 0 {
				t.Errorf("%q: kept", head)
			}
		}
		p.wantDials(t, 3)
	}
}

func TestAnswersAreStreamed(t *testing.T) {
	step := make(chan struct{})
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for i := 0; r.URL.Path == "/events"; i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-step:
			case <-r.Context().Done():
				close(step)
				return
			}
		}
	})
	m := one(t, p)
	ctx, leave := context.WithCancelCause(t.Context())
	res, err := get(ctx, m, 80, "/events")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		b := make([]byte, len("data: 0\n\n"))
		if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != fmt.Sprintf("data: %d\n\n", i) {
			t.Fatalf("%q, %v", b, err)
		}
		step <- struct{}{}
	}
	why := errors.New("the reader has left")
	leave(why)
	if _, err := io.Copy(io.Discard, res.Body); !errors.Is(err, why) {
		t.Errorf("the body ended with %v", err)
	}
	<-step // closed: the server was told
	wantFetch(t, m, 80, "/", "")
	p.wantDials(t, 2)
}

// A body that is not read to its end closes only its own connection.
func TestABodyIsGivenUp(t *testing.T) {
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			w.Write(make([]byte, 1<<20))
			return
		}
		echoPath(w, r)
	})
	m := one(t, p)
	for range 3 {
		res, err := get(t.Context(), m, 80, "/large")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, res.Body, 1000); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if _, err := res.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("reading after Close: %v", err)
		}
		wantFetch(t, m, 80, "/small", "/small")
	}
}

func TestGivingUpBeforeAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan struct{})
		p := raw(t, func(c net.Conn, requests func() *http.Request) {
			requests()
			requests() // none follows: returns at the end
			close(told)
		})
		why := errors.New("long enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, why)
		defer cancel()
		if _, err := get(ctx, one(t, p), 80, "/"); !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
		<-told
		p.wantDials(t, 1)
	})
}

func TestKeptConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Millisecond) }
		pool := keepalive.NewPool(clock{})
		var machines []*keepalive.Conns
		for range 20 {
			machines = append(machines, machine(t, pool, map[uint16]*port{1: serve(t, slow), 2: serve(t, slow), 3: serve(t, slow)}))
		}
		// crowd sends requests to the ports of some machines at once.
		crowd := func(times int, machines []*keepalive.Conns, ports ...uint16) {
			var wait sync.WaitGroup
			for _, m := range machines {
				for _, n := range ports {
					for range times {
						wait.Go(func() {
							if _, err := fetch(t.Context(), m, n, "/"); err != nil {
								t.Error(err)
							}
						})
					}
				}
			}
			wait.Wait()
		}
		for _, c := range []struct{ machines, ports, want int }{{1, 1, 32}, {1, 3, 64}, {20, 3, 1024}} {
			if crowd(40, machines[:c.machines], []uint16{1, 2, 3}[:c.ports]...); pool.Idle() != c.want {
				t.Errorf("%d ports of %d machines: %d are kept, want %d", c.ports, c.machines, pool.Idle(), c.want)
			}
		}
		if time.Sleep(2 * time.Second); pool.Idle() != 0 {
			t.Errorf("%d are left", pool.Idle())
		}
	})
}

func TestKeepable(t *testing.T) {
	for _, c := range []struct {
		method, body string
		header       http.Header
		want         bool
	}{
		{method: "GET", want: true},
		{method: "OPTIONS", want: true},
		{method: "GET", header: http.Header{"Authorization": {"Basic YTpi"}}, want: true},
		{method: "HEAD"},
		{method: "POST"},
		{method: "DELETE"},
		{method: "GET", body: "x"},
		{method: "POST", body: "x"},
		{method: "GET", header: http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}},
		{method: "GET", header: http.Header{"Expect": {"100-continue"}}},
		{method: "GET", header: http.Header{"Authorization": {"NTLM TlRMTVNTUAAB"}}},
		{method: "GET", header: http.Header{"Authorization": {"negotiate YII"}}},
	} {
		r, err := http.NewRequest(c.method, "http://localhost/", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if c.header != nil {
			r.Header = c.header
		}
		if got := keepalive.Keepable(r); got != c.want {
			t.Errorf("%s with body %q and %v: %t", c.method, c.body, c.header, got)
		}
	}
	chunked, err := http.NewRequest("GET", "http://localhost/", io.NopCloser(strings.NewReader("x")))
	if err != nil || keepalive.Keepable(chunked) {
		t.Errorf("one with a body of unknown length, %v", err)
	}
}
