package lifecycle_test

import (
	"context"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func (g *guest) Wait(_ context.Context, req bothy.WaitRequest) (*bothy.WaitResult, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waited = append(g.waited, req)
	return &bothy.WaitResult{Line: "found"}, nil
}

// A paused sandbox is woken only by a wait that the key and the arguments allow.
func TestWaitIsCheckedBeforeASandboxIsWoken(t *testing.T) {
	w := newWorld(t)
	id := w.create(bothy.SandboxCreate{AutoResume: true}).ID
	if _, err := w.Pause(w.me(), id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	reader := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: "mine", Scopes: []bothy.Scope{bothy.ScopeSandboxesRead}})
	_, err := w.Wait(reader, id, bothy.WaitRequest{Port: -1})
	wantCode(t, err, bothy.CodeForbidden)
	for _, req := range []bothy.WaitRequest{
		{}, {Port: 1, URL: "http://localhost/"}, {Port: 1, Log: "x", PID: 1}, {Port: -1}, {Port: 65536}, {URL: "localhost:80"}, {URL: "ftp://localhost/"}, {URL: "http://"},
		{URL: "http://localhost/", Status: 99}, {Port: 1, Status: 200}, {Log: "x"}, {Log: "x", PID: 1, Path: "/a"}, {Port: 1, Path: "/a"}, {Port: 1, Regex: true}, {PID: 1, User: "root"},
		{Log: "(", PID: 1, Regex: true}, {Log: strings.Repeat("x", bothy.MaxWaitText+1), PID: 1}, {PID: -1}, {Port: 1, TimeoutSeconds: bothy.MaxWaitSeconds + 1}, {Port: 1, TimeoutSeconds: -1},
	} {
		_, err := w.Wait(w.me(), id, req)
		if bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%+v: %v", req, err)
		}
	}
	if got := w.get(id).State; got != bothy.StatePaused {
		t.Fatalf("it is %s", got)
	}
	res, err := w.Wait(w.me(), id, bothy.WaitRequest{Log: "(", PID: 7})
	if err != nil || res.Line != "found" {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := w.guests.last().waited; len(got) != 1 || got[0].TimeoutSeconds != bothy.DefaultWaitSeconds {
		t.Errorf("the guest got %+v", got)
	}
}
