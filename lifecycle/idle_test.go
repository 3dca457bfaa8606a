package lifecycle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

func TestIdleSandboxesArePausedAndResumedOnUse(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{IdleSeconds: 60, AutoResume: true, TimeoutSeconds: seconds(0)})
	g := w.guests.last()
	use := func() {
		t.Helper()
		if _, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	w.clock.pass(40 * time.Second)
	use()
	w.clock.pass(40 * time.Second)
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Fatalf("paused %d s after its last use", 40)
	}
	// A running command keeps the sandbox running.
	g.setCommands(1)
	w.clock.pass(61 * time.Second)
	m, err := w.Metrics(w.me(), sb.ID)
	if err != nil || !slices.Contains(m.HeldAwakeBy, "command") {
		t.Errorf("the metrics are %+v, %v", m, err)
	}
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Fatal("it was paused with a command running")
	}
	g.setCommands(0)
	if m, err := w.Metrics(w.me(), sb.ID); err != nil || len(m.HeldAwakeBy) != 0 {
		t.Errorf("the metrics are %+v, %v", m, err)
	}
	w.clock.pass(61 * time.Second)
	w.clock.pass(61 * time.Second)
	if got := w.get(sb.ID); got.State != bothy.StatePaused {
		t.Fatalf("when idle it is %s", got.State)
	}
	use()
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("after use it is %s", got.State)
	}
	w.clock.pass(2 * time.Minute)
	if got := w.get(sb.ID); got.State != bothy.StatePaused {
		t.Errorf("when idle again it is %s", got.State)
	}
}

func TestASandboxCanEndWhenIdle(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{IdleSeconds: 60, EndWhenIdle: true, AutoResume: true, TimeoutSeconds: seconds(0)})
	w.guests.last().setCommands(1)
	w.clock.pass(2 * time.Minute)
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Fatalf("it is %s with a command running", got.State)
	}
	w.guests.last().setCommands(0)
	w.clock.pass(2 * time.Minute)
	w.clock.pass(2 * time.Minute)
	got := w.get(sb.ID)
	if got.State != bothy.StateStopped || got.Ended == nil || got.Ended.Reason != bothy.EndTimeout || got.Ended.Detail != "nothing used it for 60 seconds" {
		t.Errorf("when idle it is %s, %+v", got.State, got.Ended)
	}
}

func TestIdleCanBeTurnedOff(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{IdleSeconds: 60, TimeoutSeconds: seconds(0)})
	off := 0
	if _, err := w.Update(w.me(), sb.ID, bothy.SandboxUpdate{IdleSeconds: &off}); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(time.Hour)
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("it is %s", got.State)
	}
}

func TestAnOpenConnectionKeepsASandboxRunning(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{IdleSeconds: 60, TimeoutSeconds: seconds(0)})
	w.guests.last().ports = map[uint16]bool{8000: true}
	_, err := w.DialPort(w.me(), sb.ID, 9999)
	wantCode(t, err, bothy.CodeConflict)
	_, err = w.DialPort(w.me(), sb.ID, bothy.GuestPort)
	wantCode(t, err, bothy.CodeInvalid)
	c, err := w.DialPort(w.me(), sb.ID, 8000)
	if err != nil {
		t.Fatal(err)
	}
	w.clock.pass(2 * time.Minute)
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Fatal("it was paused with an open connection")
	}
	c.Close()
	c.Close()
	w.clock.pass(2 * time.Minute)
	w.clock.pass(2 * time.Minute)
	if got := w.get(sb.ID); got.State != bothy.StatePaused {
		t.Errorf("it is %s", got.State)
	}
}

func TestSecretsStayOutside(t *testing.T) {
	w := newWorld(t)
	const value = "sk-very-secret-value"
	secret := bothy.Secret{Name: "API_KEY", Value: value, Hosts: []string{"api.example.com"}}
	sb := w.create(bothy.SandboxCreate{Secrets: []bothy.Secret{secret}})
	id := w.guests.last().identity()
	if id.Env["API_KEY"] != "placeholder-API_KEY" || id.CABundle != "ca" {
		t.Errorf("the guest got %+v", id)
	}
	b, err := json.Marshal(w.get(sb.ID))
	if err != nil || bytes.Contains(b, []byte(value)) {
		t.Errorf("the value is in the answer: %s", b)
	}
	seed := w.gateways.last().seed
	n := w.pause(sb.ID)
	w.closeServer()
	filepath.WalkDir(w.dir, func(path string, d os.DirEntry, _ error) error {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(value)) {
			t.Errorf("the value is in %s", path)
		}
		return nil
	})
	w.open()
	if _, err := w.Resume(w.me(), n.ID, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := w.gateways.last().secretValues(); !slices.Equal(got, []string{value}) {
		t.Errorf("after a pause the gateway has %q", got)
	}
	if _, err := w.Fork(w.me(), sb.ID, bothy.ForkRequest{Count: 1}); err != nil {
		t.Fatal(err)
	}
	if got := w.gateways.last().secretValues(); len(got) != 0 {
		t.Errorf("a fork without secrets got %q", got)
	}
	forks, err := w.Fork(w.me(), sb.ID, bothy.ForkRequest{Count: 1, Secrets: true})
	if err != nil || len(forks) != 1 {
		t.Fatal(err)
	}
	if !slices.Equal(forks[0].SecretNames, sb.SecretNames) || len(sb.SecretNames) != 1 {
		t.Errorf("the fork has the secret names %q, its origin %q", forks[0].SecretNames, sb.SecretNames)
	}
	if got := w.gateways.last().secretValues(); !slices.Equal(got, []string{value}) {
		t.Errorf("a fork with secrets got %q", got)
	}
	// Its processes still have the origin's placeholders in memory.
	if got := w.gateways.last().seed; len(got) == 0 || !bytes.Equal(got, seed) {
		t.Error("a fork with secrets has other placeholders than its origin")
	}
}

func TestSecretsAreReplaced(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	guest, gw := w.guests.last(), w.gateways.last()
	before := guest.identity()
	if before.CABundle != "" {
		t.Errorf("without secrets it trusts %q", before.CABundle)
	}
	change := func(id string, list ...bothy.Secret) (*bothy.Sandbox, error) {
		return w.Update(w.me(), id, bothy.SandboxUpdate{Secrets: append([]bothy.Secret{}, list...)})
	}
	one := bothy.Secret{Name: "API_KEY", Value: "value-1", Hosts: []string{"api.example.com"}}
	got, err := change(sb.ID, one)
	if err != nil || !slices.Equal(got.SecretNames, []string{"API_KEY"}) {
		t.Fatalf("%v, %v", got, err)
	}
	id := guest.identity()
	if id.Env["API_KEY"] != "placeholder-API_KEY" || id.CABundle != "ca" || id.Key != before.Key || id.SandboxID != sb.ID {
		t.Errorf("the guest got %+v", id)
	}
	seed := gw.seed
	one.Value = "value-2"
	if _, err := change(sb.ID, one); err != nil {
		t.Fatal(err)
	}
	if got := gw.secretValues(); !slices.Equal(got, []string{"value-2"}) || !bytes.Equal(gw.seed, seed) {
		t.Errorf("the gateway has %q, and the seed of the placeholders changed: %v", got, !bytes.Equal(gw.seed, seed))
	}

	// A failed change has no effect.
	bad := one
	bad.Hosts = []string{"bad"}
	if _, err := change(sb.ID, bad); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("bad hosts: %v", err)
	}
	w.guests.mu.Lock()
	w.guests.failAdopt = errors.New("the guest does not answer")
	w.guests.mu.Unlock()
	two := bothy.Secret{Name: "OTHER", Value: "value-3", Hosts: []string{"api.example.com"}}
	if _, err := change(sb.ID, two); err == nil {
		t.Error("the change succeeded although the guest does not answer")
	}
	w.guests.mu.Lock()
	w.guests.failAdopt = nil
	w.guests.mu.Unlock()
	if got := gw.secretValues(); !slices.Equal(got, []string{"value-2"}) || !slices.Equal(w.get(sb.ID).SecretNames, []string{"API_KEY"}) {
		t.Errorf("after a failed change the gateway has %q, and the secret names are %q", got, w.get(sb.ID).SecretNames)
	}

	// A paused sandbox gets them when it is resumed.
	n := w.pause(sb.ID)
	if _, err := change(sb.ID, two); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Resume(w.me(), n.ID, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := w.gateways.last().secretValues(); !slices.Equal(got, []string{"value-3"}) || w.guests.last().identity().Env["OTHER"] == "" {
		t.Errorf("after a pause the gateway has %q", got)
	}
	if got, err := change(sb.ID); err != nil || len(got.SecretNames) != 0 || len(w.gateways.last().secretValues()) != 0 {
		t.Errorf("without any it has %q, %v", w.gateways.last().secretValues(), err)
	}
}

func (g *guest) setCommands(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats = bothy.GuestStats{Processes: 1 + n, Commands: n}
}

func (g *guest) setStats(s bothy.GuestStats) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats = s
}

func (g *guest) Stats(context.Context) (bothy.GuestStats, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats, nil
}

// DialPort connects to servers on the loopback.
func (g *guest) DialPort(_ context.Context, port uint16) (net.Conn, error) {
	if g.site != nil && port == 8000 {
		return g.site.dial()
	}
	if !g.ports[port] {
		return nil, errors.New("refused")
	}
	c, other := net.Pipe()
	go func() { // echo until closed
		var b [1]byte
		for {
			if _, err := other.Read(b[:]); err != nil {
				return
			}
		}
	}()
	return c, nil
}

func (g *gateway) SetSecrets(list []bothy.Secret, seed []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.secrets, g.seed = list, seed
	return nil
}

func (g *gateway) secretValues() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for _, s := range g.secrets {
		out = append(out, s.Value)
	}
	return out
}

func (g *gateway) CAPEM() []byte {
	if len(g.secretValues()) == 0 {
		return nil
	}
	return []byte("ca")
}

func (g *gateway) Placeholders() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := map[string]string{}
	for _, s := range g.secrets {
		m[s.Name] = "placeholder-" + s.Name
	}
	return m
}
