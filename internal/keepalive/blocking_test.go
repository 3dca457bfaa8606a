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

// A server that has one thread must not wait for the next request on a connection
// that is idle while others wait for it.
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
		// together sends a slow request and, while it is served, another one, and
		// returns how long that took.
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
		// It is known now, and nothing is kept for it.
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

// An answer that takes its time is no reason to close what is in use or of use.
func TestASlowAnswerIsNoBlockedServer(t *testing.T) {
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
