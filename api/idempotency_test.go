package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/middleware"
)

func key(k string) header { return header{"Idempotency-Key": k} }

func TestRepetitionGetsTheFirstAnswer(t *testing.T) {
	f := start(t)
	first := f.ok(201, f.do("POST", "/v1/sandboxes", `{"name":"a"}`, key("k1")))
	again := f.ok(201, f.do("POST", "/v1/sandboxes", `{"name":"a"}`, key("k1")))
	if first.body != again.body || first.Header.Get("Location") != again.Header.Get("Location") ||
		again.Header.Get("Content-Type") != first.Header.Get("Content-Type") {
		t.Errorf("%s\n%s", first.body, again.body)
	}
	if first.Header.Get("Idempotency-Replayed") != "" || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Error("which one was replayed?")
	}
	other := f.ok(201, f.do("POST", "/v1/sandboxes", `{"name":"a"}`, key("k2")))
	if other.body == first.body {
		t.Error("another key got the same answer")
	}
	if f.as(apitest.Stranger).ok(201, f.as(apitest.Stranger).do("POST", "/v1/sandboxes", `{"name":"a"}`, key("k1"))).body == first.body {
		t.Error("a stranger's key is the same")
	}
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/sandboxes", `{"name":"b"}`},
		{"POST", "/v1/sandboxes", ``},
		{"DELETE", first.Header.Get("Location"), ``},
	} {
		f.failed(bothy.CodeIdempotency, f.do(c.method, c.path, c.body, key("k1")))
	}
}

func TestEmptyAnswersAreRemembered(t *testing.T) {
	f := start(t)
	path := f.create()
	f.ok(200, f.do("PUT", path+"/files?path=a", "x"))
	f.ok(204, f.do("DELETE", path+"/files?path=a", nil, key("k")))
	if res := f.ok(204, f.do("DELETE", path+"/files?path=a", nil, key("k"))); res.Header.Get("Idempotency-Replayed") != "true" {
		t.Error("not replayed")
	}
	f.failed(bothy.CodeFileNotFound, f.do("DELETE", path+"/files?path=a", nil, key("k2")))
}

// A failed request changed nothing, and can be retried with its key.
func TestFailuresAreNotRemembered(t *testing.T) {
	f := start(t)
	f.world.Fail(bothy.Errorf(bothy.CodeCapacity, "full").WithHint("Wait."))
	f.failed(bothy.CodeCapacity, f.do("POST", "/v1/sandboxes", nil, key("k")))
	f.world.Fail(errors.New("broken"))
	f.failed(bothy.CodeInternal, f.do("POST", "/v1/sandboxes", nil, key("k")))
	f.world.Fail(nil)
	f.failed(bothy.CodeInvalid, f.do("POST", "/v1/sandboxes", `{"cpu":-1}`, key("k")))
	path := f.ok(201, f.do("POST", "/v1/sandboxes", nil, key("k"))).Header.Get("Location")
	f.failed(bothy.CodeInternal, f.do("POST", path+"/exec", `{"command":"panic"}`, key("p")))
	f.ok(200, f.do("POST", path+"/exec", `{"command":"echo"}`, key("p")))
}

// What was cut off after it had begun is not executed again: the key says so. A key whose server has
// died meanwhile as well.
func TestWhatWasCutOffIsNotExecutedAgain(t *testing.T) {
	f := start(t)
	path := f.create() + "/exec"
	f.failed(bothy.CodeSandboxPaused, f.do("POST", path, `{"command":"cut"}`, key("k")))
	f.world.Fail(errors.New("it was asked again"))
	f.answers.Lose("lost")
	for _, k := range []string{"k", "lost"} {
		res := f.do("POST", path, `{"command":"cut"}`, key(k))
		p := f.failed(bothy.CodeOutcomeUnknown, res)
		if res.StatusCode != 409 || res.Header.Get("Idempotency-Replayed") != "true" || res.Header.Get("Retry-After") != "" || !strings.Contains(p.Hint, "new Idempotency-Key") {
			t.Errorf("%s: %d %v %s", k, res.StatusCode, res.Header, res.body)
		}
	}
	f.failed(bothy.CodeIdempotency, f.do("POST", path, `{"command":"another"}`, key("k")))
}

// If an answer cannot be stored, the key of what must not be done twice does not become free.
func TestTheKeyOfWhatWasDoneStaysTaken(t *testing.T) {
	f := start(t)
	path := f.create() + "/exec"
	for i, failures := range []int{1, 2} {
		k := key(fmt.Sprint("k", i))
		f.answers.FailToStore(failures)
		f.ok(200, f.do("POST", path, `{"command":"echo"}`, k))
		f.failed(bothy.CodeConflict, f.do("POST", path, `{"command":"echo"}`, k))
	}
}

func TestTwoAtOnce(t *testing.T) {
	f := start(t)
	f.world.Busy = make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		res := f.do("POST", "/v1/sandboxes", nil, key("k"))
		if res.StatusCode != 201 {
			t.Errorf("%s", res.body)
		}
	})
	<-f.world.Waiting
	res := f.do("POST", "/v1/sandboxes", nil, key("k"))
	f.failed(bothy.CodeConflict, res)
	if res.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", res.Header.Get("Retry-After"))
	}
	f.failed(bothy.CodeIdempotency, f.do("POST", "/v1/sandboxes", `{"name":"b"}`, key("k")))
	close(f.world.Busy)
	wg.Wait()
	if res := f.ok(201, f.do("POST", "/v1/sandboxes", nil, key("k"))); res.Header.Get("Idempotency-Replayed") != "true" {
		t.Error("not replayed")
	}
	if len(f.world.Waiting) != 0 {
		t.Error("the service was asked twice")
	}
}

func TestConcurrentRequestsRunOnce(t *testing.T) {
	f := start(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			res := f.do("POST", "/v1/sandboxes", nil, key("k"))
			if res.StatusCode != 201 && res.StatusCode != 409 {
				t.Errorf("%d %s", res.StatusCode, res.body)
			}
		})
	}
	wg.Wait()
	p := decode[bothy.Page[*bothy.Sandbox]](f, f.ok(200, f.do("GET", "/v1/sandboxes", nil)))
	if len(p.Items) != 1 {
		t.Errorf("%d sandboxes", len(p.Items))
	}
}

// A retry gets the answer that did not reach the client.
func TestLostAnswerIsRemembered(t *testing.T) {
	f := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	lost := f.request("POST", "/v1/sandboxes", nil, key("k")).WithContext(ctx)
	w := httptest.NewRecorder()
	f.ServeHTTP(w, lost)
	res := f.ok(201, f.do("POST", "/v1/sandboxes", nil, key("k")))
	if res.Header.Get("Idempotency-Replayed") != "true" || res.body != w.Body.String() {
		t.Errorf("%s\n%s", res.body, w.Body)
	}
	stream := f.request("POST", res.Header.Get("Location")+"/exec", `{"command":"echo"}`, key("s"), asEvents)
	f.ServeHTTP(httptest.NewRecorder(), stream.WithContext(ctx))
	res = f.ok(200, f.do("POST", res.Header.Get("Location")+"/exec", `{"command":"echo"}`, key("s"), asEvents))
	if res.Header.Get("Idempotency-Replayed") != "" || !strings.Contains(res.body, "is_final") {
		t.Errorf("half a stream was kept: %s", res.body)
	}
}

func TestBadKeys(t *testing.T) {
	f := start(t)
	for _, k := range []string{strings.Repeat("x", 256), "with space", "ünïcode"} {
		f.failed(bothy.CodeInvalid, f.do("POST", "/v1/sandboxes", nil, key(k)))
	}
	f.ok(201, f.do("POST", "/v1/sandboxes", nil, key(strings.Repeat("x", 255))))
}

func TestStreamsAreRemembered(t *testing.T) {
	f := start(t)
	path := f.create() + "/exec"
	h := key("k")
	h["Accept"] = "text/event-stream"
	first := f.ok(200, f.do("POST", path, `{"command":"echo a"}`, h))
	again := f.ok(200, f.do("POST", path, `{"command":"echo a"}`, h))
	if first.body != again.body || again.Header.Get("Idempotency-Replayed") != "true" || again.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%s\n%s", first.body, again.body)
	}
	f.failed(bothy.CodeIdempotency, f.do("POST", path, `{"command":"echo a"}`, key("k"))) // the same, as JSON
}

// An API key is shown once. A retry must neither show it again nor create another one, and the key must
// not be stored.
func TestSecretsAreNotRemembered(t *testing.T) {
	f := start(t).as(apitest.Admin)
	token := decode[bothy.Token](f, f.ok(201, f.do("POST", "/v1/tokens", `{"name":"ci"}`, key("k"))))
	res := f.do("POST", "/v1/tokens", `{"name":"ci"}`, key("k"))
	f.failed(bothy.CodeConflict, res)
	if strings.Contains(f.answers.Everything(), token.Key) {
		t.Error("the key was stored")
	}
}

func TestLargeAnswersAreNotRemembered(t *testing.T) {
	f := start(t)
	path := f.create() + "/exec"
	f.ok(200, f.do("POST", path, `{"command":"big"}`, key("k")))
	p := f.failed(bothy.CodeConflict, f.do("POST", path, `{"command":"big"}`, key("k")))
	if !strings.Contains(p.Detail, "too large") {
		t.Errorf("%q", p.Detail)
	}
}

// leave runs "wait" for a caller that disconnects meanwhile.
func (f *fixture) leave(path, body string, headers ...header) {
	f.Helper()
	ctx, leave := context.WithCancel(f.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, err := f.client.Do(f.request("POST", path, body, headers...).WithContext(ctx))
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}()
	for !f.world.Started("wait") {
		time.Sleep(time.Millisecond)
	}
	leave()
	<-done
}

// A command that was killed when its caller disconnected is not run again for its key.
func TestKilledCommandsAreRemembered(t *testing.T) {
	for name, accept := range map[string]string{"json": "application/json", "events": middleware.EventsType} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			path := f.create() + "/exec"
			f.leave(path, `{"command":"wait"}`, key("k"), header{"Accept": accept})
			<-f.world.Canceled
			again := func() response {
				return f.do("POST", path, `{"command":"wait"}`, key("k"), header{"Accept": accept})
			}
			res := again()
			for res.Header.Get("Retry-After") != "" { // the first is still being cleaned up
				res = again()
			}
			f.failed(bothy.CodeCommandCancelled, res)
			if res.Header.Get("Idempotency-Replayed") != "true" {
				t.Error("it was run again")
			}
		})
	}
}

// A request that keeps running stores its result for a retry with the same key.
func TestResultOfACommandThatKeepsRunning(t *testing.T) {
	f := start(t)
	path := f.create() + "/exec"
	const body = `{"command":"wait","keep_running":true}`
	f.leave(path, body, key("k"))
	if res := f.do("POST", path, body, key("k")); res.StatusCode != 409 || res.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	close(f.world.Finish)
	res := f.do("POST", path, body, key("k"))
	for res.StatusCode == 409 {
		res = f.do("POST", path, body, key("k"))
	}
	if f.ok(200, res).Header.Get("Idempotency-Replayed") != "true" || len(f.world.Canceled) > 0 {
		t.Errorf("%v %s", res.Header, res.body)
	}
}

// If an answer was too large to store, the request is still not executed again.
func TestLargeAnswersAreRememberedWithoutTheirBody(t *testing.T) {
	f := start(t)
	path := f.create() + "/exec"
	body := map[string]any{"command": "echo " + strings.Repeat("x", middleware.MaxRemembered)}
	f.ok(200, f.do("POST", path, body, key("k")))
	res := f.do("POST", path, body, key("k"))
	if p := f.failed(bothy.CodeConflict, res); !strings.Contains(p.Detail, "already executed") || res.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s", res.body)
	}
	if kept := f.answers.Everything(); len(kept) > 64<<10 {
		t.Errorf("%d bytes are kept", len(kept))
	}
}
