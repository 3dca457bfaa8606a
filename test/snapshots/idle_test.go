package snapshots

import (
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// quick are the times of sandboxes that are soon paused.
const quick = 2

func TestTimeoutPauses(t *testing.T) {
	t.Parallel()
	seconds := quick + 2
	b := shared.newBox(t, bothy.SandboxCreate{TimeoutSeconds: &seconds, OnTimeout: bothy.TimeoutPause})
	b.startCounter()
	before := b.counter()
	b.becomes(bothy.StatePaused)
	eventually(t, "leave the host", func() bool { return b.s.Leftovers(b.id) == nil })
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
	b.continued(before)
}

// A sandbox whose time-out passes while the server is down is paused when the server starts, not lost.
func TestTimeoutPausesAfterTheServerWasDown(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	seconds := quick + 2
	b := s.newBox(t, bothy.SandboxCreate{TimeoutSeconds: &seconds, OnTimeout: bothy.TimeoutPause})
	b.startCounter()
	before, expires := b.counter(), *b.get().ExpiresAt
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "be overdue", func() bool { return time.Now().After(expires) })
	s.restart(t)
	b.becomes(bothy.StatePaused)
	b.resume(b.id)
	b.continued(before)
}

func TestIdleSandboxIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{IdleSeconds: quick, AutoResume: true})
	b.startQuietCounter()
	// An open context and a shell at its prompt are not activity.
	b.run("x = 40", "")
	shell := b.terminal()
	shell.say("touch /tmp/said")
	eventually(t, "hear", func() bool { _, err := b.try("test -e /tmp/said"); return err == nil })
	before := b.counter()
	shell.t.Close()
	b.becomes(bothy.StatePaused)

	// Every use resumes it: a command, code, a file, a connection.
	if got := b.sh("echo awake"); got != "awake" {
		t.Errorf("it prints %q", got)
	}
	b.is(bothy.StateRunning)
	b.continued(before)
	b.becomes(bothy.StatePaused)
	b.run("print(x + 2)", "42\n")
	b.becomes(bothy.StatePaused)
	ctx, cancel := within(t)
	defer cancel()
	if _, err := b.s.Files.Stat(ctx, b.id, "/tmp/counter.py", ""); err != nil {
		t.Error(err)
	}
}

func TestACommandKeepsASandboxRunning(t *testing.T) {
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
		t.Errorf("held_awake_by is %v, want the command", got)
	}
	// It runs beyond its idle time, and is paused when the command has ended.
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

func TestACodeKernelIsNotACommand(t *testing.T) {
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
			t.Fatalf("an idle code kernel keeps it running: %v", m.HeldAwakeBy)
		}
		return len(m.HeldAwakeBy) == 0
	})
}

// TestEveryUseResumes checks that users need not know that a sandbox is paused, and that reading its
// metrics does not resume it.
func TestEveryUseResumes(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{AutoResume: true})
	ticks := b.spawn(`i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.2; done`)
	b.spawn("cd /tmp && exec python3 -m http.server 8000")
	eventually(t, "serve", func() bool { _, err := b.fetch(8000, "/"); return err == nil })
	b.sh("echo hello >/tmp/file")
	ctx, cancel := within(t)
	defer cancel()
	var read int64
	for what, use := range map[string]func() error{
		"a command": func() error { _, err := b.try("true"); return err },
		"a command that streams": func() error {
			return b.s.Exec.ExecStream(ctx, b.id, bothy.ExecRequest{Command: bothy.Command{Line: "true"}}, func(bothy.ExecEvent) error { return nil })
		},
		"code": func() error {
			_, err := b.s.Code.RunCode(ctx, b.id, bothy.CodeRequest{Code: "1"})
			return err
		},
		"a file": func() error {
			r, _, err := b.s.Files.Read(ctx, b.id, "/tmp/file", "")
			if err != nil {
				return err
			}
			return r.Close()
		},
		"a folder": func() error { _, err := b.s.Files.List(ctx, b.id, "/tmp", "", 1); return err },
		"a new file": func() error {
			_, err := b.s.Files.Write(ctx, b.id, "/tmp/new", strings.NewReader("x"), bothy.WriteOptions{})
			return err
		},
		"processes": func() error { _, err := b.s.Exec.Processes(ctx, b.id); return err },
		"a terminal": func() error {
			term, err := b.s.Exec.Terminal(ctx, b.id, bothy.TerminalRequest{Cols: 80, Rows: 24})
			if err != nil {
				return err
			}
			return term.Close()
		},
		"a connection": func() error { _, err := b.fetch(8000, "/"); return err },
		// The output of a command from before and after can be followed from an offset.
		"output": func() error {
			var text strings.Builder
			from := read
			err := b.s.Exec.Output(ctx, b.id, ticks, from, func(e bothy.ExecEvent) error {
				text.WriteString(e.Data)
				if read = e.Offset + int64(len(e.Data)); strings.Count(text.String(), "\n") > 3 {
					return io.EOF
				}
				return nil
			})
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if from == 0 && !strings.HasPrefix(text.String(), "tick 1\ntick 2\n") {
				t.Errorf("the output begins with %.20q", text.String())
			}
			return err
		},
	} {
		b.pause()
		_, err := b.s.Metrics.Metrics(ctx, b.id)
		refused(t, "the metrics of a sandbox that sleeps", err, bothy.CodeSandboxPaused)
		b.is(bothy.StatePaused)
		if err := use(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		b.is(bothy.StateRunning)
	}
	seen := b.output(ticks)
	eventually(t, "tick on", func() bool { return b.output(ticks) > seen })
}

func TestMetricsSayWhatKeepsASandboxRunning(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.spawn("cd /tmp && exec python3 -m http.server 8000")
	eventually(t, "serve", func() bool { _, err := b.fetch(8000, "/"); return err == nil })
	ctx, cancel := within(t)
	defer cancel()
	held := func(want string) bool {
		m, err := b.s.Metrics.Metrics(ctx, b.id)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(m.HeldAwakeBy, want)
	}
	for what, begin := range map[string]func() (io.Closer, error){
		"connection": func() (io.Closer, error) { return b.s.Ports.DialPort(ctx, b.id, 8000) },
		"terminal": func() (io.Closer, error) {
			return b.s.Exec.Terminal(ctx, b.id, bothy.TerminalRequest{Cols: 80, Rows: 24})
		},
	} {
		// The connection of the request may still be closing.
		eventually(t, "be held by no "+what, func() bool { return !held(what) })
		c, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "be held by a "+what, func() bool { return held(what) })
		c.Close()
		eventually(t, "let go of a "+what, func() bool { return !held(what) })
	}
}
