package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

func TestOnlySomeRequestsShareConnections(t *testing.T) {
	f := start(t)
	f.world.Server = http.HandlerFunc(inside)
	path := f.create() + "/ports/8080"
	shared := func(n int64, method, body string) {
		t.Helper()
		before := f.world.Fetched.Load()
		f.ok(418, f.do(method, path+"/", body))
		if got := f.world.Fetched.Load() - before; got != n {
			t.Errorf("%s with body %q: %d over a kept connection, want %d", method, body, got, n)
		}
	}
	shared(1, "GET", "")
	shared(1, "OPTIONS", "")
	shared(0, "GET", "x")
	shared(0, "POST", "x")
	shared(0, "POST", "")
	shared(0, "DELETE", "")
	before := f.world.Fetched.Load()
	conn, _ := f.dial(path + "/socket")
	readUntil(t, conn, "from inside")
	if f.world.Fetched.Load() != before {
		t.Error("a WebSocket over a kept connection")
	}
}

// A caller that leaves ends what it asked for, also over a kept connection.
func TestLeavingEndsARequestInside(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		f := start(t)
		left := make(chan struct{})
		f.world.Server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(left)
		})
		ctx, leave := context.WithCancel(t.Context())
		res, err := f.client.Do(f.request(method, f.create()+"/ports/8080/", nil).WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(res.Body).ReadString('\n')
		if err != nil || line != "data: 1\n" {
			t.Errorf("%q, %v", line, err)
		}
		leave()
		res.Body.Close()
		select {
		case <-left:
		case <-time.After(time.Minute):
			t.Errorf("%s: the server in the sandbox did not get the request", method)
		}
	}
}

// What a server inside does not read is not taken from the caller, but for what lies
// in buffers.
func TestUploadsWaitForTheServerInside(t *testing.T) {
	const size = 64 << 20
	f := start(t)
	upload := &countedZeros{left: size}
	f.world.Server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var read int64
		for {
			n, err := io.CopyN(io.Discard, r.Body, 1<<20)
			if read += n; upload.taken.Load()-read > size/2 {
				t.Errorf("%d bytes were taken from the caller when %d had been read", upload.taken.Load(), read)
				return
			}
			if err != nil {
				fmt.Fprint(w, read)
				return
			}
		}
	})
	res := f.ok(200, f.do("POST", f.create()+"/ports/8080/", io.Reader(upload)))
	if res.body != fmt.Sprint(size) {
		t.Errorf("%s bytes arrived", res.body)
	}
}

type countedZeros struct {
	left  int
	taken atomic.Int64
}

func (z *countedZeros) Read(p []byte) (int, error) {
	n := min(len(p), z.left)
	if z.left -= n; n == 0 {
		return 0, io.EOF
	}
	clear(p[:n])
	z.taken.Add(int64(n))
	return n, nil
}

// An HTTP/1.0 client gets an answer that ends with the connection.
func TestProxyForOldClients(t *testing.T) {
	f := start(t)
	f.world.Server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			io.WriteString(w, "part ")
			w.(http.Flusher).Flush()
		}
	})
	c, err := net.Dial("tcp", f.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET "+f.create()+"/ports/8080/ HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer "+f.key+"\r\n\r\n")
	b, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.0 200") || !strings.HasSuffix(string(b), "\r\n\r\npart part part ") {
		t.Errorf("%q, %v", b, err)
	}
}

func TestAServerInsideThatBreaksOff(t *testing.T) {
	f := start(t)
	f.world.Server = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	path := f.create() + "/ports/8080/"
	for _, method := range []string{"GET", "POST"} {
		f.failed(bothy.CodeGuest, f.do(method, path, nil))
	}
}
