package snapshots

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// quick are the times of sandboxes that are to fall asleep soon.
const quick = 2

func TestTimeoutPauses(t *testing.T) {
	t.Parallel()
	seconds := quick + 2
	b := shared.newBox(t, bothy.SandboxCreate{TimeoutSeconds: &seconds, OnTimeout: bothy.TimeoutPause})
	b.startCounter()
	before := b.counter()
	b.becomes(bothy.StatePaused)
	eventually(t, "leave the host", func() bool { return b.s.leftovers(b.id) == nil })
	long := 600
	sb := b.resume(b.id)
	if sb.ExpiresAt == nil || !sb.ExpiresAt.After(time.Now()) {
		t.Errorf("after the resume it expires at %v", sb.ExpiresAt)
	}
	ctx, cancel := within(t)
	defer cancel()
	if _, err := b.s.Sandboxes.Update(ctx, b.id, bothy.SandboxUpdate{TimeoutSeconds: &long}); err != nil {
		t.Fatal(err)
	}
	b.wentOn(before)
}

// TestTimeoutPausesAlsoWhileTheServerIsDown checks that work which is to be kept
// is not thrown away because nobody was there to keep it.
func TestTimeoutPausesAlsoWhileTheServerIsDown(t *testing.T) {
	t.Parallel()
	s := ownServer(t, "")
	seconds := quick + 2
	b := s.newBox(t, bothy.SandboxCreate{TimeoutSeconds: &seconds, OnTimeout: bothy.TimeoutPause})
	b.startCounter()
	before, expires := b.counter(), *b.get().ExpiresAt
	if err := s.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "be overdue", func() bool { return time.Now().After(expires) })
	s.restart(t, "")
	b.becomes(bothy.StatePaused)
	b.resume(b.id)
	b.wentOn(before)
}

func TestIdleSandboxSleepsAndWakes(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{IdleSeconds: quick, AutoResume: true})
	b.startQuietCounter()
	// An open context and a shell at its prompt are no work.
	b.run("x = 40", "")
	shell := b.terminal()
	shell.say("touch /tmp/said")
	eventually(t, "hear", func() bool { _, err := b.try("test -e /tmp/said"); return err == nil })
	before := b.counter()
	shell.t.Close()
	b.becomes(bothy.StatePaused)

	// Whatever comes wakes it: a command, code, a file, a connection.
	if got := b.sh("echo awake"); got != "awake" {
		t.Errorf("it says %q", got)
	}
	b.is(bothy.StateRunning)
	b.wentOn(before)
	b.becomes(bothy.StatePaused)
	b.run("print(x + 2)", "42\n")
	b.becomes(bothy.StatePaused)
	ctx, cancel := within(t)
	defer cancel()
	if _, err := b.s.Files.Stat(ctx, b.id, "/tmp/counter.py", ""); err != nil {
		t.Error(err)
	}
}

func TestWorkHoldsAwake(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{IdleSeconds: quick, AutoResume: false})
	sleeper := b.spawn("exec sleep 1000")
	ctx, cancel := within(t)
	defer cancel()
	held := func() []string {
		m, err := b.s.Metrics.Metrics(ctx, b.id)
		if err != nil {
			t.Fatal(err)
		}
		return m.HeldAwakeBy
	}
	if got := held(); !slices.Contains(got, "command") {
		t.Errorf("it is held awake by %v, want the command", got)
	}
	// It outlives its idle time, and sleeps when the command has ended.
	past := time.Now().Add(2 * quick * time.Second)
	eventually(t, "stay awake", func() bool { b.is(bothy.StateRunning); return time.Now().After(past) })
	if err := b.s.Exec.Signal(ctx, b.id, sleeper, int(syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "be idle", func() bool { return b.get().State == bothy.StatePaused || len(held()) == 0 })
	b.becomes(bothy.StatePaused)
	_, err := b.try("true")
	refused(t, "use without auto_resume", err, bothy.CodeSandboxPaused)
}

func TestKernelIsNoCommand(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.run("import sys; print('said')", "said\n")
	ctx, cancel := within(t)
	defer cancel()
	list, err := b.s.Exec.Processes(ctx, b.id)
	if err != nil || len(list) != 0 {
		t.Errorf("ps shows %+v, %v", list, err)
	}
	logs, err := b.s.Logs.Logs(ctx, b.id, 0)
	if err != nil || len(logs.Items) != 0 {
		t.Errorf("logs shows %+v, %v", logs, err)
	}
	eventually(t, "rest", func() bool {
		m, err := b.s.Metrics.Metrics(ctx, b.id)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(m.HeldAwakeBy, "command") {
			t.Fatalf("an idle kernel holds it awake: %v", m.HeldAwakeBy)
		}
		return len(m.HeldAwakeBy) == 0
	})
}
