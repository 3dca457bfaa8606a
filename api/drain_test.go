package api

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// A server that is drained finishes requests in flight, and meanwhile answers that it is stopping.
func TestDrainWaitsForRequests(t *testing.T) {
	f := start(t, func(s *setup) { s.config.Grace = time.Minute })
	b := f.create()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	following := f.open(ctx, "GET", "/v1/events", nil, header{"Accept": "text/event-stream"})
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, err := f.client.Do(f.request("POST", b+"/exec", `{"command":"wait"}`).WithContext(ctx))
		if err == nil {
			res.Body.Close()
		}
	}()
	until := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it does not come to pass that %s", what)
			}
		}
	}
	until("the command runs", func() bool { return f.world.Started("wait") })
	drained := make(chan struct{})
	go func() {
		f.Drain()
		close(drained)
	}()
	until("the server says that it stops", func() bool { return f.do("GET", "/healthz", nil).StatusCode == http.StatusServiceUnavailable })
	f.ok(http.StatusOK, f.do("GET", b, nil))
	until("what only follows has ended", func() bool { _, err := following.Body.Read(make([]byte, 1)); return err != nil })
	select {
	case <-drained:
		t.Fatal("it did not wait for the command")
	default:
	}
	leave() // the command ends
	<-drained
	<-done
}

func TestDrainIsBounded(t *testing.T) {
	f := start(t, func(s *setup) { s.config.Grace = 50 * time.Millisecond })
	b := f.create()
	go func() {
		res, err := f.client.Do(f.request("POST", b+"/exec", `{"command":"wait"}`))
		if err == nil {
			res.Body.Close()
		}
	}()
	for !f.world.Started("wait") {
		time.Sleep(time.Millisecond)
	}
	f.Drain()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	<-f.world.Canceled // the command was cut off
}
