package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
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

// A create whose answer was lost is repeated: it gets the sandbox that was made, also after a restart of the
// server, as long as that has not ended.
func TestARepeatedCreateFindsItsSandbox(t *testing.T) {
	w := newWorld(t)
	template := bothy.SandboxCreate{}
	n, err := w.CreateSnapshot(w.me(), w.create(template).ID, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	for name, req := range map[string]bothy.SandboxCreate{"template": template, "snapshot": {SnapshotID: n.ID}} {
		create := func() (*bothy.Sandbox, error) {
			ctx, _ := w.once(name)
			return w.Create(ctx, req)
		}
		first, err := create()
		if err != nil {
			t.Fatal(err)
		}
		before := w.Live()
		w.restart()
		again, err := create()
		if err != nil || again.ID != first.ID || again.State != bothy.StateRunning || w.Live() != before {
			t.Fatalf("%s: repeated it is %+v %v, and %d are live", name, again, err, w.Live())
		}
		w.pause(first.ID)
		if again, err = create(); err != nil || again.ID != first.ID || again.State != bothy.StatePaused {
			t.Errorf("%s: paused it is %+v %v", name, again, err)
		}
		ctx := bothy.WithOnce(w.me(), &bothy.Once{Key: name, Print: "of another request"})
		_, err = w.Create(ctx, req)
		wantCode(t, err, bothy.CodeIdempotency)
		ctx = bothy.WithOnce(as(t, "theirs"), &bothy.Once{Key: name, Print: "print of " + name})
		if theirs, err := w.Create(ctx, template); err != nil || theirs.ID == first.ID {
			t.Errorf("%s: another project's is %+v %v", name, theirs, err)
		}
		if err := w.Terminate(w.me(), first.ID); err != nil {
			t.Fatal(err)
		}
		if again, err = create(); err != nil || again.ID == first.ID || again.State != bothy.StateRunning {
			t.Errorf("%s: once it has ended it is %+v %v", name, again, err)
		}
	}
}

// A create that failed is not found: its repetition is another attempt. While one is in progress, its
// repetition is told to wait.
func TestARepeatedCreateAfterAFailure(t *testing.T) {
	w := newWorld(t)
	create := func() (*bothy.Sandbox, error) {
		ctx, _ := w.once("k")
		return w.Create(ctx, bothy.SandboxCreate{})
	}
	var during error
	w.host.FailStart = func(string) error {
		w.host.FailStart = nil
		_, during = create()
		return errors.New("boom")
	}
	if _, err := create(); err == nil {
		t.Fatal("it did not fail")
	}
	wantCode(t, during, bothy.CodeConflict)
	if bothy.AsError(during).RetryAfter == 0 {
		t.Errorf("during the start: %v", during)
	}
	if sb, err := create(); err != nil || sb.State != bothy.StateRunning {
		t.Errorf("repeated: %+v %v", sb, err)
	}
}

// A fork that the end of its server cuts off leaves no copies behind. A complete one stays.
func TestAForkThatWasCutOffLeavesNoCopies(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	complete, err := w.Fork(w.me(), sb.ID, bothy.ForkRequest{Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	reached, leave := make(chan struct{}), make(chan struct{})
	remove := failpoint.Set("lifecycle.forked", func() error {
		close(reached)
		<-leave
		return errors.New("the server died")
	})
	old := async(func() error {
		_, err := w.Fork(w.me(), sb.ID, bothy.ForkRequest{Count: 4, Name: "cut"})
		return err
	})
	<-reached
	remove()
	if n := w.Live(); n != 8 {
		t.Fatalf("%d are live before the fork is cut off", n)
	}
	w.restart()
	if n := w.Live(); n != 4 {
		t.Errorf("%d are live after it was cut off", n)
	}
	all, err := w.List(w.me(), bothy.SandboxFilter{})
	if err != nil {
		t.Fatal(err)
	}
	cut := 0
	for _, sb := range all.Items {
		if !strings.HasPrefix(sb.Name, "cut-") {
			continue
		}
		if cut++; sb.State != bothy.StateFailed || !strings.Contains(sb.Ended.Detail, "fork") {
			t.Errorf("a copy is %s, %+v", sb.State, sb.Ended)
		}
	}
	if cut != 4 {
		t.Errorf("%d copies are recorded", cut)
	}
	for i := range 2 {
		for _, c := range complete {
			if got := w.get(c.ID); got.State != bothy.StateRunning {
				t.Errorf("a copy of a complete fork is %s, %+v", got.State, got.Ended)
			}
		}
		if i == 0 { // also without the first
			if err := w.Terminate(w.me(), complete[0].ID); err != nil {
				t.Fatal(err)
			}
			complete = complete[1:]
			w.restart()
		}
	}
	close(leave)
	if <-old == nil {
		t.Error("the fork succeeded although it was cut off")
	}
}
