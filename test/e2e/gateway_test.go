package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// ports returns the ports that the sandbox tried to reach according to its log, in order.
func (b *box) ports() []uint16 {
	b.Helper()
	var all []uint16
	for _, d := range b.decisions() {
		if d.Protocol == "tcp" && !d.Allowed && d.Repeated == 0 {
			all = append(all, d.Port)
		}
	}
	return all
}

// knock lets the sandbox try a port of a host that it may not reach.
func (b *box) knock(port string) {
	b.Helper()
	b.sh("", "! exec 3<>/dev/tcp/198.51.100.7/"+port)
}

// The network log can be read as long as the sandbox exists: after a crash of the server, while the
// sandbox is paused, and after it has ended.
func TestNetworkLogSurvivesCrashesAndPauses(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	b := s.newBox(t, bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"good.example.org"}}})
	want := func(when string, ports ...uint16) {
		t.Helper()
		for end := time.Now().Add(hangs); !slices.Equal(b.ports(), ports); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s the log has the ports %v, want %v", when, b.ports(), ports)
			}
		}
	}
	b.knock("1001")
	want("at first", 1001)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	b.s = s
	want("after a crash", 1001)
	b.knock("1002")
	want("after another try", 1001, 1002)
	if _, err := s.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	want("asleep", 1001, 1002)
	if _, err := s.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	b.knock("1003")
	want("awake", 1001, 1002, 1003)
	if err := s.Sandboxes.Terminate(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	want("at the end", 1001, 1002, 1003)
}

// In a copy created with the secrets, a process with a placeholder in its memory continues to work. A
// copy created without them has no placeholders.
func TestCopiesAndSecrets(t *testing.T) {
	t.Parallel()
	const value = "the-value-itself"
	b := newBox(t, bothy.SandboxCreate{
		Network: &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"api.example.org"}},
		Secrets: []bothy.Secret{{Name: "TOKEN", Value: value, Hosts: []string{"api.example.org"}}},
	})
	placeholder := strings.TrimSpace(b.sh("", "echo $TOKEN"))
	if !strings.HasPrefix(placeholder, "bothy-secret-TOKEN-") {
		t.Fatalf("the sandbox sees %q", placeholder)
	}
	b.try(bothy.ExecRequest{Background: true, Command: bothy.Command{
		Line: `mkfifo /tmp/ask && touch /tmp/holds; while read line </tmp/ask; do echo "$TOKEN" >/tmp/told.new; mv /tmp/told.new /tmp/told; done`,
	}})
	b.sh("", "until [ -e /tmp/holds ]; do sleep 0.05; done")
	for _, asked := range []bool{true, false} {
		copies, err := shared.Snapshots.Fork(t.Context(), b.id, bothy.ForkRequest{Count: 1, Secrets: asked})
		if err != nil {
			t.Fatal(err)
		}
		c := &box{t, shared, t.Context(), copies[0].ID}
		defer func() { _ = shared.Sandboxes.Terminate(t.Context(), c.id) }()
		held := strings.TrimSpace(c.sh("", "echo now >/tmp/ask; until [ -e /tmp/told ]; do sleep 0.05; done; cat /tmp/told"))
		if held != placeholder {
			t.Errorf("the process in the copy has %q, want %q", held, placeholder)
		}
		fresh := strings.TrimSpace(c.sh("", "echo $TOKEN"))
		if asked && fresh != placeholder {
			t.Errorf("a copy with the secrets sees %q, but its processes have %q", fresh, placeholder)
		}
		if !asked && fresh != "" {
			t.Errorf("a copy without the secrets sees %q", fresh)
		}
		if found := c.sh("root", "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c -- "+value+" || true"); strings.TrimSpace(found) != "0" {
			t.Errorf("the value is in an environment: %s", found)
		}
	}
}

func TestBadPoliciesAreRefusedBeforeTheStart(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	for _, n := range []bothy.Network{
		{Mode: bothy.NetworkRestricted, Presets: []string{"nope"}},
		{Mode: bothy.NetworkRestricted, AllowDomains: []string{"https://example.org"}},
		{Mode: bothy.NetworkRestricted, AllowPorts: []uint16{0}},
	} {
		_, err := shared.create(t.Context(), bothy.SandboxCreate{Network: &n})
		if e := bothy.AsError(err); e == nil || e.Code != bothy.CodeInvalid || e.Hint == "" {
			t.Errorf("create with %+v: %v", n, err)
		}
		_, err = shared.Sandboxes.Update(t.Context(), b.id, bothy.SandboxUpdate{Network: &n})
		if e := bothy.AsError(err); e == nil || e.Code != bothy.CodeInvalid || e.Hint == "" {
			t.Errorf("update to %+v: %v", n, err)
		}
	}
	if mode := b.get().Network.Mode; mode != bothy.NetworkOff {
		t.Errorf("the policy is now %s", mode)
	}
}
