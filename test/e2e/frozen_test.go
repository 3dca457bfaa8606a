package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// isFrozen reads the freezer of a sandbox's cgroup, of either version.
func isFrozen(t *testing.T, s *server, id string) bool {
	t.Helper()
	parent := s.CgroupParent()
	if b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/freezer", parent, id, "freezer.state")); err == nil {
		return strings.TrimSpace(string(b)) == "FROZEN"
	}
	b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", parent, id, "cgroup.events"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(b), "frozen 1")
}

func awaitFrozen(t *testing.T, s *server, id string) {
	t.Helper()
	for deadline := time.Now().Add(hangs); !isFrozen(t, s, id); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("sandbox %s is idle but not frozen", id)
		}
	}
}

// TestIdleSandboxesAreFrozen checks that an idle sandbox uses no processor time without its user
// noticing, and that a sandbox with a user's process keeps running.
func TestIdleSandboxesAreFrozen(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	idle := s.defaultBox(t, bothy.SandboxCreate{Template: templateName})
	busy := s.defaultBox(t, bothy.SandboxCreate{Template: templateName})
	busy.sh("", "setsid -f bash -c 'while :; do sleep 0.5; echo tick >>/tmp/ticks; done' >/dev/null 2>&1 </dev/null")
	idle.sh("", "echo before >/tmp/note")

	awaitFrozen(t, s, idle.id)
	before := busy.sh("", "wc -l </tmp/ticks")
	if m, err := s.Metrics.Metrics(t.Context(), idle.id); err != nil || m.Processes == 0 || !isFrozen(t, s, idle.id) {
		t.Errorf("the metrics of a frozen sandbox are %+v, %v", m, err)
	}
	if got := idle.get(); got.State != bothy.StateRunning {
		t.Errorf("it is %s", got.State)
	}
	inside, err := strconv.ParseInt(idle.sh("", "date +%s"), 10, 64)
	if off := time.Since(time.Unix(inside, 0)); err != nil || off < -5*time.Second || off > hangs {
		t.Errorf("the clock of a thawed sandbox is %s slow, %v", off, err)
	}

	awaitFrozen(t, s, idle.id)
	if isFrozen(t, s, busy.id) {
		t.Error("a sandbox with a process was frozen")
	}
	if after := busy.sh("", "wc -l </tmp/ticks"); after == before {
		t.Errorf("the process in the busy sandbox stopped at %s", after)
	}

	// After a crash the server does not know which sandboxes are frozen.
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if out := idle.sh("", "cat /tmp/note"); out != "before" {
		t.Errorf("the note is %q", out)
	}
	awaitFrozen(t, s, idle.id)
	snapshot, err := s.Snapshots.Pause(t.Context(), idle.id, bothy.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshots.Resume(t.Context(), snapshot.ID, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if out := idle.sh("", "cat /tmp/note"); out != "before" {
		t.Errorf("after a pause the note is %q", out)
	}
	awaitFrozen(t, s, idle.id)
	if err := s.Sandboxes.Terminate(t.Context(), idle.id); err != nil {
		t.Error(err)
	}
}

// freeze freezes or thaws a sandbox's cgroup as the server does, without waiting.
func freeze(t *testing.T, s *server, id string, frozen bool) {
	t.Helper()
	file, value := filepath.Join("/sys/fs/cgroup/freezer", s.CgroupParent(), id, "freezer.state"), "THAWED"
	if frozen {
		value = "FROZEN"
	}
	if _, err := os.Stat(file); err != nil {
		file, value = filepath.Join("/sys/fs/cgroup", s.CgroupParent(), id, "cgroup.freeze"), "0"
		if frozen {
			value = "1"
		}
	}
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// TestFreezingABusySandbox freezes a sandbox repeatedly while it starts processes: its kernel must not
// lose anything.
func TestFreezingABusySandbox(t *testing.T) {
	t.Parallel()
	b := ownServer(t).newBox(t, bothy.SandboxCreate{}) // without spares, whose cgroups have other names
	b.sh("", "setsid -f sh -c 'while :; do /bin/true; echo . >>/tmp/turns; done' >/dev/null 2>&1 </dev/null")
	for i := range 300 {
		freeze(t, b.s, b.id, true)
		freeze(t, b.s, b.id, false)
		time.Sleep(time.Duration(i%5) * 3 * time.Millisecond) // so that it is frozen at different points
	}
	before := b.sh("", "wc -c </tmp/turns")
	for deadline := time.Now().Add(hangs); b.sh("", "wc -c </tmp/turns") == before; {
		if time.Now().After(deadline) {
			t.Fatalf("it hangs after %s rounds", before)
		}
	}
}
