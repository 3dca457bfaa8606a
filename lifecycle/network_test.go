package lifecycle_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// refuseBad stands in for the real gateway's validation.
func refuseBad(names []string) error {
	if slices.Contains(names, "bad") {
		return bothy.Errorf(bothy.CodeInvalid, "bad is not a name")
	}
	return nil
}

// networkLogs are the stored logs of gateways.
type networkLogs struct {
	mu    sync.Mutex
	lines map[string][]bothy.NetworkDecision
	kept  map[string]bool
}

func (l *networkLogs) Read(id string) ([]bothy.NetworkDecision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines[id]), nil
}

func (l *networkLogs) Sweep(keep func(id string) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = map[string]bool{}
	for id := range l.lines {
		l.kept[id] = keep(id)
	}
	return nil
}

func TestBadPoliciesAndSecretsStartNothing(t *testing.T) {
	w := newWorld(t)
	bad := &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"bad"}}
	for what, req := range map[string]bothy.SandboxCreate{
		"policy": {Network: bad},
		"secret": {Secrets: []bothy.Secret{{Name: "K", Value: "v", Hosts: []string{"bad"}}}},
	} {
		if _, err := w.Create(w.me(), req); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("a bad %s: %v", what, err)
		}
	}
	if list, err := w.List(w.me(), bothy.SandboxFilter{}); err != nil || len(list.Items) != 0 {
		t.Errorf("refused requests left %d sandboxes, %v", len(list.Items), err)
	}
	good := &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"good"}}
	sb := w.create(bothy.SandboxCreate{Network: good})
	for _, state := range []bothy.State{bothy.StateRunning, bothy.StatePaused} {
		if got := w.get(sb.ID).State; got != state {
			t.Fatalf("the sandbox is %s", got)
		}
		if _, err := w.Update(w.me(), sb.ID, bothy.SandboxUpdate{Network: bad}); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("a bad policy while %s: %v", state, err)
		}
		if got := w.get(sb.ID).Network.AllowDomains; !slices.Equal(got, good.AllowDomains) {
			t.Errorf("while %s the policy changed to %q", state, got)
		}
		if _, err := w.Fork(w.me(), sb.ID, bothy.ForkRequest{Network: bad}); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("a fork with a bad policy while %s: %v", state, err)
		}
		if state == bothy.StateRunning {
			w.pause(sb.ID)
		}
	}
}

func TestNetworkLogOfAPausedSandbox(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	w.pause(sb.ID)
	then := time.Unix(1_000_000, 0)
	w.networkLogs.lines = map[string][]bothy.NetworkDecision{
		sb.ID:     {{Time: then.Add(time.Hour), Port: 2}, {Time: then, Port: 1}},
		"sbxgone": {{Time: then, Port: 3}},
	}
	read := func(ctx context.Context, since time.Time) (ports []uint16, err error) {
		err = w.NetworkLog(ctx, sb.ID, since, true, func(d bothy.NetworkDecision) error {
			ports = append(ports, d.Port)
			return nil
		})
		return ports, err
	}
	if got, err := read(w.me(), time.Time{}); err != nil || !slices.Equal(got, []uint16{1, 2}) {
		t.Errorf("all: %v, %v", got, err)
	}
	if got, err := read(w.me(), then.Add(time.Minute)); err != nil || !slices.Equal(got, []uint16{2}) {
		t.Errorf("since: %v, %v", got, err)
	}
	if got, err := read(as(t, "theirs"), time.Time{}); bothy.ErrorCode(err) != bothy.CodeSandboxNotFound || got != nil {
		t.Errorf("another project reads %v, %v", got, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go w.Janitor(ctx, time.Millisecond, time.Hour)
	eventually(t, "the log of a forgotten sandbox is swept", func() bool {
		w.networkLogs.mu.Lock()
		defer w.networkLogs.mu.Unlock()
		return w.networkLogs.kept != nil && w.networkLogs.kept[sb.ID] && !w.networkLogs.kept["sbxgone"]
	})
}
