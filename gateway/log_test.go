package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

func TestEqualDecisionsFold(t *testing.T) {
	clock := newManualClock()
	l := newDecisionLog(clock)
	d := bothy.NetworkDecision{Protocol: "tcp", Name: "a.example", Port: 443, Reason: "no", BytesOut: 2}
	for range 1000 {
		l.record(d)
	}
	if lines, _ := l.since(time.Time{}); len(lines) != 1 || lines[0].Repeated != 0 {
		t.Fatalf("within the window: %+v", lines)
	}
	clock.advance(foldWindow)
	lines, _ := l.since(time.Time{})
	if len(lines) != 2 || lines[1].Repeated != 998 || lines[1].BytesOut != 999*2 {
		t.Fatalf("after the window: %+v", lines)
	}
	l.record(d)
	if lines, _ := l.since(time.Time{}); len(lines) != 3 {
		t.Errorf("a decision after the window is not a new line: %d lines", len(lines))
	}
}

func TestFloodOfDecisionsIsBounded(t *testing.T) {
	clock := newManualClock()
	l := newDecisionLog(clock)
	for i := range 100_000 {
		l.record(bothy.NetworkDecision{Protocol: "tcp", Address: fmt.Sprint(i), Reason: "no"})
	}
	lines, _ := l.since(time.Time{})
	if len(lines) != logBurst {
		t.Errorf("a flood made %d lines", len(lines))
	}
	if len(l.folds) > logSize {
		t.Errorf("%d folds are in memory", len(l.folds))
	}
	clock.advance(foldWindow)
	lines, _ = l.since(time.Time{})
	last := lines[len(lines)-1]
	if last.Repeated+1 != 100_000-logBurst || last.Address != "" {
		t.Errorf("the rest is summed up as %+v", last)
	}
	for range 1000 {
		clock.advance(time.Second)
		for i := range 100 {
			l.record(bothy.NetworkDecision{Protocol: "tcp", Address: fmt.Sprint(i), Reason: "no"})
		}
	}
	if len(l.ring) > logSize {
		t.Errorf("%d lines are in memory", len(l.ring))
	}
}

func TestFollowMissesNothing(t *testing.T) {
	clock := newManualClock()
	l := newDecisionLog(clock)
	say := func(i int) {
		clock.advance(time.Second)
		l.record(bothy.NetworkDecision{Protocol: "tcp", Address: fmt.Sprint(i), Reason: "no"})
	}
	for i := range 3 {
		say(i)
	}
	got := make(chan string, 10)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		done <- l.follow(ctx, clock.Now().Add(-time.Second), func(d bothy.NetworkDecision) error { got <- d.Address; return nil })
	}()
	for i := 1; i < 6; i++ {
		if i >= 3 {
			say(i)
		}
		select {
		case a := <-got:
			if a != fmt.Sprint(i) {
				t.Fatalf("got line %s, want %d", a, i)
			}
		case <-time.After(hangs):
			t.Fatalf("line %d did not arrive", i)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("following ended with %v", err)
	}
}

func TestSlowReaderLearnsHowManyLinesItMissed(t *testing.T) {
	clock := newManualClock()
	l := newDecisionLog(clock)
	for i := range 2 * logSize {
		clock.advance(time.Second)
		l.record(bothy.NetworkDecision{Protocol: "tcp", Address: fmt.Sprint(i), Reason: "no"})
	}
	lines, next, _ := l.from(0)
	if lines[0].Repeated+1 != logSize || lines[1].Address != fmt.Sprint(logSize) || next != 2*logSize {
		t.Errorf("got %+v, then %d", lines[:2], next)
	}
}

func TestDecisionsOfOneConnection(t *testing.T) {
	var mu sync.Mutex
	var got []bothy.NetworkDecision
	l := newWeb(t, func(o *Options) {
		o.OnDecision = func(d bothy.NetworkDecision) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, d)
		}
	})
	l.policy(only("good.example"))
	if s, err := l.exchange("good.example", 80, get("good.example", "/")); err != nil {
		t.Fatal(s, err)
	}
	if _, err := l.dial("5.6.7.8:443"); err == nil {
		t.Fatal("connected")
	}
	l.lookup("evil.example")
	if err := l.gateway.Close(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{
		"dns good.example true domain:good.example",
		"http good.example true domain:good.example",
		"closed http good.example true domain:good.example",
		"tcp  false ",
		"dns evil.example false ",
	}
	seen := map[string]bothy.NetworkDecision{}
	for _, d := range got {
		key := fmt.Sprintf("%s %s %v %s", d.Protocol, d.Name, d.Allowed, d.Rule)
		if d.Closed {
			key = "closed " + key
		}
		seen[key] = d
	}
	for _, w := range want {
		d, ok := seen[w]
		if !ok {
			t.Errorf("no line %q in %+v", w, got)
		}
		if d.Time.IsZero() || !d.Allowed && d.Reason == "" {
			t.Errorf("%q lacks details: %+v", w, d)
		}
	}
	if d := seen[want[2]]; d.BytesOut == 0 || d.BytesIn == 0 || d.Port != 80 || d.Address == "" {
		t.Errorf("the last line of the connection is %+v", d)
	}
}

func TestConnectionThatClosesWithTheGatewayIsLogged(t *testing.T) {
	var last bothy.NetworkDecision
	l := newLab(t, func(o *Options) { o.OnDecision = func(d bothy.NetworkDecision) { last = d } })
	l.net.serve("5.6.7.8:80", echo)
	l.policy(open)
	if err := ping(l.mustDial("5.6.7.8:80"), "hello"); err != nil {
		t.Fatal(err)
	}
	if err := l.gateway.Close(); err != nil {
		t.Fatal(err)
	}
	if !last.Closed || last.BytesIn != 5 || last.BytesOut != 5 {
		t.Errorf("the last line is %+v", last)
	}
}

func TestOpenLogHasTheNameThatWasLookedUp(t *testing.T) {
	l := newWeb(t)
	l.policy(open)
	if _, err := l.exchange("good.example", 80, get("good.example", "/")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the connection is logged with its name", func() bool {
		for _, d := range l.gateway.Log(time.Time{}) {
			if d.Closed && d.Name == "good.example" && d.Address == "5.6.7.8" && d.Rule == "mode:open" {
				return true
			}
		}
		return false
	})
}
