package keepalive_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy/internal/keepalive"
)

// A server with one thread must not wait for the next request on an idle connection while others wait.
func TestAServerWithOneThreadIsNotBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := oneByOne(t, func(c net.Conn, requests func() *http.Request) {
			for r := requests(); r != nil; r = requests() {
				if r.URL.Path == "/slow" {
					time.Sleep(100 * time.Millisecond)
				}
				io.WriteString(c, answer)
			}
		})
		pool := keepalive.NewPool(clock{})
		m := machine(t, pool, map[uint16]*port{80: p})
		// together sends a slow request and another one meanwhile, and returns how long the other took.
		together := func() time.Duration {
			done := make(chan struct{})
			go func() { defer close(done); wantFetch(t, m, 80, "/slow", "ok") }()
			time.Sleep(10 * time.Millisecond)
			begun := time.Now()
			wantFetch(t, m, 80, "/", "ok")
			<-done
			return time.Since(begun)
		}
		for range 3 {
			if took := together(); took > 90*time.Millisecond+50*time.Millisecond {
				t.Errorf("the second request took %v", took)
			}
			time.Sleep(2 * time.Second)
		}
		// The server is now known to be blocking, so no connection is kept.
		if took := together(); took != 90*time.Millisecond {
			t.Errorf("the second request took %v", took)
		}
		if pool.Idle() != 0 {
			t.Error("a connection is kept that blocks the server")
		}
		time.Sleep(time.Minute)
		wantFetch(t, m, 80, "/", "ok")
		if pool.Idle() != 1 {
			t.Error("the server is never tried again")
		}
	})
}

// A slow answer is no reason to close connections in use or stop keeping them.
func TestASlowAnswerIsNotABlockedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-r.Context().Done()
			}
			echoPath(w, r)
		})
		m := one(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go get(ctx, m, 80, "/slow")
		synctest.Wait()
		for range 200 {
			wantFetch(t, m, 80, "/", "/")
			time.Sleep(20 * time.Millisecond)
		}
		if n := p.dials.Load(); n != 2 {
			t.Errorf("%d connections were made, want 2", n)
		}
	})
}
