package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

func ptr[T any](v T) *T { return &v }

func TestTimeOutEndsASandbox(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{TimeoutSeconds: ptr(2)})
	r, err := b.exec(line("", "sleep 1000")) // does not extend the time-out
	if code := bothy.ErrorCode(err); code != bothy.CodeSandboxEnded {
		t.Errorf("a command that outlives its sandbox: %+v, %v", r, err)
	}
	ended := b.endedWith(bothy.EndTimeout)
	if !strings.Contains(ended.Detail, "2 seconds") || !strings.Contains(ended.Detail, "timeout_seconds") {
		t.Errorf("the reason is %q", ended.Detail)
	}
	_, err = b.exec(line("", "true"))
	wantError(t, err, bothy.CodeSandboxEnded, b.id)
}

func TestTimeOutCanBeMoved(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{TimeoutSeconds: ptr(4)})
	first := b.get()
	update := func(seconds int) *bothy.Sandbox {
		t.Helper()
		sb, err := b.s.Sandboxes.Update(b.ctx, b.id, bothy.SandboxUpdate{TimeoutSeconds: &seconds})
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	if sb := update(600); sb.ExpiresAt == nil || !sb.ExpiresAt.After(first.ExpiresAt.Add(time.Minute)) {
		t.Errorf("it ended at %v and now ends at %v", first.ExpiresAt, sb.ExpiresAt)
	}
	b.sh("", "sleep 5") // beyond the first time-out
	b.usable()
	if sb := update(0); sb.ExpiresAt != nil {
		t.Errorf("without a time-out it ends at %v", sb.ExpiresAt)
	}
	update(1)
	b.endedWith(bothy.EndTimeout)
	_, err := b.s.Sandboxes.Update(b.ctx, b.id, bothy.SandboxUpdate{TimeoutSeconds: ptr(600)})
	wantError(t, err, bothy.CodeSandboxEnded, b.id)
}

// A command's time-out kills everything that the command started.
func TestTimeOutOfACommand(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	const survivors = "pgrep -f 'sleep 12[0-9][0-9]' | wc -l"
	for name, command := range map[string]string{
		"plain":         "sleep 1201",
		"child":         "sleep 1202 & wait",
		"own group":     "set -m; sleep 1203 & wait",
		"own session":   "setsid sleep 1204 & setsid -f sleep 1205; sleep 1206",
		"daemon":        "(setsid bash -c 'cd /; exec nohup sleep 1207 </dev/null >/dev/null 2>&1 &' &); sleep 1208",
		"deaf":          "trap '' TERM INT HUP; sleep 1209 & while :; do wait; done",
		"stopped":       "sleep 1210 & kill -STOP $!; wait",
		"clean setting": "env -i setsid -f sleep 1211; sleep 1212",
	} {
		req := line("", command)
		req.TimeoutSeconds = 1
		r := b.try(req)
		if !r.TimedOut || r.ExitCode != 137 || !strings.Contains(r.Hint, "1s") {
			t.Errorf("%s: %+v", name, r)
		}
		left := b.sh("root", survivors)
		if name == "clean setting" {
			// A process that leaves the command's session and removes its mark is independent of the
			// command, and ends with the sandbox.
			b.sh("root", "pkill -f 'sleep 12[0-9][0-9]'; true")
			continue
		}
		if left != "0" {
			t.Errorf("%s: %s processes survived the command: %s", name, left, b.sh("root", "ps -ef || ls /proc"))
			b.sh("root", "pkill -9 -f 'sleep 12[0-9][0-9]'; true")
		}
	}
	b.usable()
}

// A command is killed when its caller leaves, unless it was started in the background or to be kept
// running.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	background := b.try(bothy.ExecRequest{Command: bothy.Command{Args: []string{"sleep", "1301"}}, Background: true})
	leave := func(follow func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			b.sh("", "until pgrep -f 'sleep 130[234]'; do sleep 0.05; done")
		}()
		if err := follow(ctx); err == nil {
			t.Error("the command ended by itself")
		}
	}
	leave(func(ctx context.Context) error {
		return b.s.Exec.ExecStream(ctx, b.id, line("", "sleep 1302"), func(bothy.ExecEvent) error { return nil })
	})
	b.sh("", "while pgrep -f 'sleep 130[2]'; do sleep 0.05; done")
	leave(func(ctx context.Context) error {
		_, err := b.s.Exec.Exec(ctx, b.id, line("", "sleep 1303"))
		return err
	})
	b.sh("", "while pgrep -f 'sleep 130[3]'; do sleep 0.05; done")
	leave(func(ctx context.Context) error {
		kept := line("", "sleep 1304")
		kept.KeepRunning = true
		_, err := b.s.Exec.Exec(ctx, b.id, kept)
		return err
	})
	b.sh("", "sleep 1; pgrep -f 'sleep 130[4]'")
	b.running(background.PID)
}
