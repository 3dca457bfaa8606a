package api

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/inflight"
	"github.com/bothy-dev/bothy/api/middleware"
)

// within gives a server low limits, beyond which requests are refused at once.
func within(requests, streams, memory inflight.Bounds) func(*setup) {
	return func(s *setup) {
		s.services.Inflight = &inflight.Limits{
			Requests: inflight.NewPool("requests", requests), Streams: inflight.NewPool("streams", streams),
			Memory: inflight.NewPool("bytes", memory),
		}
	}
}

var plenty = inflight.Bounds{Total: 1 << 30, Project: 1 << 30}

// nothingHeld waits until everything has been released.
func (f *fixture) nothingHeld() {
	f.Helper()
	l := f.services.Inflight
	for name, p := range map[string]*inflight.Pool{"requests": l.Requests, "streams": l.Streams, "memory": l.Memory} {
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			used, _ := p.Stats()
			if used == 0 {
				break
			}
			if time.Now().After(end) {
				f.Errorf("%d of the %s are still held", used, name)
				break
			}
		}
	}
}

func (f *fixture) limited(res response) {
	f.Helper()
	if f.failed(bothy.CodeRateLimited, res); res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
		f.Errorf("%d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
	}
}

// A project at its limit of requests in flight is refused, and no other one.
func TestRequestsInFlightAreBounded(t *testing.T) {
	f := start(t, within(inflight.Bounds{Total: 4, Project: 2, Reserved: 2}, plenty, plenty))
	greedy := f.as(apitest.Stranger)
	f.world.Busy = make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { greedy.ok(201, greedy.do("POST", "/v1/sandboxes", nil)) })
		<-f.world.Waiting
	}
	f.limited(greedy.do("GET", "/v1/sandboxes", nil))
	f.limited(greedy.do("POST", "/v1/sandboxes", nil, key("k"))) // and its key stays free
	f.ok(200, f.do("GET", "/v1/sandboxes", nil))
	close(f.world.Busy)
	wg.Wait()
	f.nothingHeld()
	greedy.ok(201, greedy.do("POST", "/v1/sandboxes", nil, key("k")))
	f.nothingHeld()
}

// Open streams have a separate limit, and release their place when they end.
func TestStreamsAreBounded(t *testing.T) {
	f := start(t, within(plenty, inflight.Bounds{Total: 4, Project: 2, Reserved: 2}, plenty))
	greedy := f.as(apitest.Stranger)
	var leave []context.CancelFunc
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		leave = append(leave, cancel)
		res, err := f.client.Do(greedy.request("GET", "/v1/events", nil, asEvents).WithContext(ctx))
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		defer res.Body.Close()
	}
	f.limited(greedy.do("GET", "/v1/events", nil, asEvents))
	greedy.ok(200, greedy.do("GET", "/v1/events", nil)) // as a list it is no stream
	f.ok(200, f.do("GET", "/v1/sandboxes", nil))
	for _, cancel := range leave {
		cancel()
	}
	f.nothingHeld()
}

func TestWhichRequestsAreStreams(t *testing.T) {
	f := start(t)
	seen := 0
	for _, c := range f.registry.Operations() {
		r, _ := http.NewRequest(c.Method, "/", nil)
		events := slices.ContainsFunc(c.Returns, func(x middleware.Form) bool { return x.ContentType == middleware.EventsType })
		only := events && len(c.Returns) == 1
		if got := middleware.StaysOpen(r, &c); got != only {
			t.Errorf("%s without Accept stays open: %v", c.ID, got)
		}
		r.Header.Set("Accept", middleware.EventsType)
		if got := middleware.StaysOpen(r, &c); events && !got {
			t.Errorf("%s as events does not stay open", c.ID)
		}
		if events {
			seen++
		}
		r.Header.Set("Upgrade", "websocket")
		if !middleware.StaysOpen(r, &c) {
			t.Errorf("%s as a WebSocket does not stay open", c.ID)
		}
	}
	if seen < 5 {
		t.Errorf("only %d calls answer with events", seen)
	}
}

// slow is a body that pauses in the middle until it may continue.
type slow struct {
	io.Reader
	started chan struct{}
	let     chan struct{}
	once    sync.Once
}

func (s *slow) Read(p []byte) (int, error) {
	s.once.Do(func() { close(s.started); <-s.let })
	return s.Reader.Read(p)
}

// Memory is reserved before a body is read. Large bodies wait for it or are refused; small ones, and
// those of other projects, are not affected.
func TestBodiesTakeMemory(t *testing.T) {
	const large, part = 1 << 20, 3 << 18
	body := `{"path":"x","content":"` + strings.Repeat("x", large) + `"}`
	f := start(t, within(plenty, plenty, inflight.Bounds{Total: 10 * large * middleware.DecodeFactor, Project: large * middleware.DecodeFactor * 3 / 2, Reserved: large}))
	greedy := f.as(apitest.Stranger)
	path := greedy.create()
	mine := f.create()
	for name, chunked := range map[string]bool{"of a known length": false, "in chunks": true} {
		t.Run(name, func(t *testing.T) {
			s := &slow{Reader: strings.NewReader(body), started: make(chan struct{}), let: make(chan struct{})}
			r := greedy.request("POST", path+"/files", io.MultiReader(strings.NewReader(body[:part]), s))
			r.ContentLength = int64(len(body) + part)
			if chunked {
				r.ContentLength = -1
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				res, err := f.client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
			})
			<-s.started
			// Some data may still be in transit.
			for used := int64(0); used < part*middleware.DecodeFactor*7/8; used, _ = f.services.Inflight.Memory.Stats() {
				time.Sleep(time.Millisecond)
			}
			f.limited(greedy.do("POST", path+"/files", body))
			greedy.ok(200, greedy.do("POST", path+"/files", `{"path":"y","content":"small"}`))
			f.ok(200, f.do("POST", mine+"/files", body))
			close(s.let)
			wg.Wait()
			f.nothingHeld()
			greedy.ok(200, greedy.do("POST", path+"/files", body))
			f.nothingHeld()
		})
	}
}

// Memory of handlers is counted for their request, in other protocols too, and released even if they
// panic.
func TestHandlersTakeMemory(t *testing.T) {
	f := start(t, within(plenty, plenty, inflight.Bounds{Total: 1000 << 10, Project: 600 << 10}))
	var took atomic.Int64
	f.Handle("/other", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		took.Store(0)
		if bothy.TakeMemory(r.Context(), 100) == nil {
			used, _ := f.services.Inflight.Memory.Stats()
			took.Store(used)
		}
		panic(http.ErrAbortHandler)
	}))
	send := func(n int64, chunked bool) {
		t.Helper()
		r := f.as(apitest.Stranger).request("POST", "/other", io.LimitReader(zeros{}, n))
		if r.ContentLength = n; chunked {
			r.ContentLength = -1
		}
		if res, err := f.client.Do(r); err == nil {
			res.Body.Close()
		}
	}
	send(80<<10, false)
	if took.Load() != 80<<10*middleware.DecodeFactor+100 {
		t.Errorf("%d bytes were held", took.Load())
	}
	send(90<<10, true)
	if took.Load() < 90<<10*middleware.DecodeFactor {
		t.Errorf("%d bytes were held of a body in chunks", took.Load())
	}
	f.nothingHeld()
}
