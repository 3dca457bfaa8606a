package lifecycle_test

import (
	"context"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// once returns a context of a request with an idempotency key.
func (w *world) once(key string) (context.Context, *bothy.Once) {
	o := &bothy.Once{Key: key, Print: "print of " + key}
	return bothy.WithOnce(w.me(), o), o
}

var pwd = bothy.ExecRequest{Command: bothy.Command{Line: "pwd"}}

// A command that a pause cuts off has begun, and the error says what becomes of it. One that the guest
// refused, or that never reached it, has not.
func TestWhatAPauseCutsOffHasBegun(t *testing.T) {
	for _, resumes := range []bool{false, true} {
		w := newWorld(t)
		sb := w.create(bothy.SandboxCreate{AutoResume: resumes})
		g := w.guests.last()
		g.onExec = func() error {
			if _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); err != nil {
				t.Error(err)
			}
			return bothy.Errorf(bothy.CodeGuest, "the connection broke")
		}
		ctx, o := w.once("k")
		_, err := w.Exec(ctx, sb.ID, pwd)
		wantCode(t, err, bothy.CodeSandboxPaused)
		e := bothy.AsError(err)
		if wakes := !strings.Contains(e.Hint, "/resume"); !strings.Contains(e.Detail, "in progress") || !strings.Contains(e.Hint, "/processes") || wakes != resumes || e.RetryAfter != 0 {
			t.Errorf("with auto_resume %v it says %q %q", resumes, e.Detail, e.Hint)
		}
		if !o.HasBegun() {
			t.Error("a command that was cut off has not begun")
		}
		if resumes {
			continue
		}
		ctx, o = w.once("k2")
		_, err = w.Exec(ctx, sb.ID, pwd)
		wantCode(t, err, bothy.CodeSandboxPaused)
		if e := bothy.AsError(err); o.HasBegun() || strings.Contains(e.Detail, "in progress") {
			t.Errorf("what never reached a guest has begun: %v, %q", o.HasBegun(), e.Detail)
		}
	}
}

// A command that is cut off while its sandbox is woken again is not said to be worth a retry.
func TestWhatAPauseAndAResumeCutOff(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	w.guests.last().onExec = func() error {
		if _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil {
			t.Error(err)
		}
		return bothy.Errorf(bothy.CodeGuest, "the connection broke")
	}
	_, err := w.Exec(w.me(), sb.ID, pwd)
	wantCode(t, err, bothy.CodeSandboxNotReady)
	if e := bothy.AsError(err); e.RetryAfter != 0 || !strings.Contains(e.Hint, "/processes") {
		t.Errorf("it says %q %q, to be repeated after %v", e.Detail, e.Hint, e.RetryAfter)
	}
}

func TestWhatAGuestRefusesHasNotBegun(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	for code, begun := range map[bothy.Code]bool{bothy.CodeCommandNotFound: false, bothy.CodeUserNotFound: false, bothy.CodeCommandCancelled: true, bothy.CodeInternal: true} {
		w.guests.last().onExec = func() error { return bothy.Errorf(code, "no").WithHint("No.") }
		ctx, o := w.once("k")
		_, err := w.Exec(ctx, sb.ID, pwd)
		wantCode(t, err, code)
		if o.HasBegun() != begun {
			t.Errorf("after %s it has begun: %v", code, o.HasBegun())
		}
	}
}
