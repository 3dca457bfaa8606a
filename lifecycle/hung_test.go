package lifecycle_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle"
)

// passing advances the clock until done has a result.
func (w *world) passing(what string, done <-chan error) error {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		select {
		case err := <-done:
			return err
		case <-time.After(5 * time.Millisecond):
			w.clock.pass(time.Second)
		}
	}
	w.t.Fatalf("it did not end: %s", what)
	return nil
}

func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// hangs makes the snapshots of a machine hang until the machine is gone. The channel is closed when one
// hangs.
func (w *world) hangs(id string) <-chan struct{} {
	began := make(chan struct{}, 10)
	m := w.host.Machine(id)
	w.host.Snapshotting = func(_ context.Context, got string) error {
		if got == id {
			began <- struct{}{}
			<-m.Done()
			return errors.New("the machine was destroyed")
		}
		return nil
	}
	return began
}

func TestDeletingDoesNotWaitForAPauseThatHangs(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	began := w.hangs(sb.ID)
	paused := async(func() error { _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); return err })
	<-began
	if err := w.passing("delete", async(func() error { return w.Terminate(w.me(), sb.ID) })); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := w.passing("pause", paused); err == nil {
		t.Error("the pause succeeded")
	}
	if got := w.get(sb.ID); got.State != bothy.StateStopped || got.Ended.Reason != bothy.EndTerminated || w.host.Machine(sb.ID) != nil {
		t.Errorf("it is %s: %+v", got.State, got.Ended)
	}
}

func TestATimeOutDoesNotWaitForAPauseThatHangs(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(60)})
	began := w.hangs(sb.ID)
	paused := async(func() error { _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); return err })
	<-began
	ended := async(func() error { w.clock.pass(time.Minute); return nil })
	if err := w.passing("pause", paused); err == nil {
		t.Error("the pause succeeded")
	}
	<-ended
	eventually(t, "ended", func() bool { return w.get(sb.ID).State.Ended() })
	if got := w.get(sb.ID); got.Ended.Reason != bothy.EndTimeout {
		t.Errorf("it ended by %s", got.Ended.Reason)
	}
}

func TestRequestsDuringAPauseThatHangsTimeOut(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	began := w.hangs(sb.ID)
	paused := async(func() error { _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); return err })
	<-began
	for what, call := range map[string]func() error{
		"exec": func() error {
			_, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}})
			return err
		},
		"pause": func() error { _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); return err },
		"update": func() error {
			_, err := w.Update(w.me(), sb.ID, bothy.SandboxUpdate{TimeoutSeconds: seconds(60)})
			return err
		},
		"fork": func() error { _, err := w.Fork(w.me(), sb.ID, bothy.ForkRequest{}); return err },
	} {
		err := w.passing(what, async(call))
		wantCode(t, err, bothy.CodeSandboxNotReady)
		if bothy.AsError(err).RetryAfter == 0 {
			t.Errorf("%s: %v has no retry_after", what, err)
		}
	}
	// A caller can also stop waiting.
	ctx, cancel := context.WithCancel(w.me())
	cancel()
	if _, err := w.Update(ctx, sb.ID, bothy.SandboxUpdate{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who left: %v", err)
	}
	w.host.Machine(sb.ID).End(bothy.Exit{Reason: bothy.EndError, Detail: "killed"})
	<-paused
}

// wired is a gateway whose guest accepts connections but never answers.
type wired struct {
	*gateway
	ends chan net.Conn
}

func (g *wired) Dial(context.Context, uint16) (net.Conn, error) {
	a, b := net.Pipe()
	g.ends <- b
	return a, nil
}

// silent is a guest that no longer answers; Exec waits for it.
type silent struct {
	*guest
	dial  func(context.Context) (net.Conn, error)
	quiet *atomic.Bool
}

func (g *silent) WaitReady(context.Context) error {
	if g.quiet.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

func (g *silent) Exec(ctx context.Context, _ bothy.ExecRequest) (*bothy.ExecResult, error) {
	c, err := g.dial(ctx)
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	return nil, bothy.Errorf(bothy.CodeGuest, "no answer").Because(err)
}

func TestACommandInAHungSandboxTimesOut(t *testing.T) {
	w := newWorld(t)
	var quiet atomic.Bool
	w.change = func(o *lifecycle.Options) {
		o.NewGateway = func(_ string, c bothy.NetDevice) (bothy.Gateway, error) {
			return &wired{w.gateways.add(c), make(chan net.Conn, 10)}, nil
		}
		o.NewGuest = func(dial func(context.Context) (net.Conn, error), key string) bothy.Guest {
			return &silent{w.guests.add(key), dial, &quiet}
		}
	}
	w.restart()
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	done := async(func() error {
		_, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "sleep"}})
		return err
	})
	// A command in a sandbox that answers may take any time.
	for range 50 {
		time.Sleep(time.Millisecond)
		w.clock.pass(10 * time.Second)
	}
	select {
	case err := <-done:
		t.Fatalf("a command in a healthy sandbox timed out: %v", err)
	default:
	}
	quiet.Store(true)
	err := w.passing("exec", done)
	wantCode(t, err, bothy.CodeGuest)
	if e := bothy.AsError(err); e.RetryAfter == 0 || e.Hint == "" {
		t.Errorf("it failed with %v", err)
	}
}

// deaf is a guest whose kernel hangs: commands do not end, not even by their time-out.
type deaf struct {
	*guest
	bothy.CodeRunner
	clock   *clock
	answers atomic.Bool
	// took is how long the last call was waited for.
	took atomic.Int64
}

func (g *deaf) WaitReady(ctx context.Context) error {
	if g.answers.Load() {
		return nil
	}
	return context.DeadlineExceeded
}

func (g *deaf) Exec(ctx context.Context, _ bothy.ExecRequest) (*bothy.ExecResult, error) {
	begun := g.clock.Now()
	<-ctx.Done()
	g.took.Store(int64(g.clock.Now().Sub(begun)))
	return nil, bothy.Errorf(bothy.CodeCommandCancelled, "the command was killed because its request was cancelled").Because(ctx.Err())
}

func (g *deaf) ExecStream(ctx context.Context, req bothy.ExecRequest, _ func(bothy.ExecEvent) error) error {
	_, err := g.Exec(ctx, req)
	return err
}

func (g *deaf) RunCode(ctx context.Context, _ bothy.CodeRequest) (*bothy.CodeResult, error) {
	_, err := g.Exec(ctx, bothy.ExecRequest{})
	return nil, err
}

// deafWorld has a sandbox whose guest is deaf.
func deafWorld(t *testing.T) (w *world, id string, g *deaf) {
	w = newWorld(t)
	g = &deaf{clock: w.clock}
	g.answers.Store(true)
	w.change = func(o *lifecycle.Options) {
		o.NewGuest = func(_ func(context.Context) (net.Conn, error), key string) bothy.Guest {
			g.guest = w.guests.add(key)
			return g
		}
	}
	w.restart()
	return w, w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)}).ID, g
}

// TestATimeOutCountsOutsideToo has calls with a time-out to a sandbox that hangs.
func TestATimeOutCountsOutsideToo(t *testing.T) {
	w, id, g := deafWorld(t)
	g.answers.Store(false)
	command := bothy.ExecRequest{Command: bothy.Command{Line: "x"}, TimeoutSeconds: 5}
	for what, call := range map[string]func() error{
		"exec": func() error { _, err := w.Exec(w.me(), id, command); return err },
		"a stream": func() error {
			return w.ExecStream(w.me(), id, command, func(bothy.ExecEvent) error { return nil })
		},
		"code": func() error {
			_, err := w.RunCode(w.me(), id, bothy.CodeRequest{Code: "x", TimeoutSeconds: 5})
			return err
		},
	} {
		err := w.passing(what, async(call))
		if took := time.Duration(g.took.Load()); took < 5*time.Second || took > 12*time.Second {
			t.Errorf("%s with a time-out of 5 s is given up after %v", what, took)
		}
		wantCode(t, err, bothy.CodeGuest)
		if e := bothy.AsError(err); e.RetryAfter == 0 || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAnOverdueCommandInASandboxThatAnswers is that of a busy host, or of a guest that lies.
func TestAnOverdueCommandInASandboxThatAnswers(t *testing.T) {
	w, id, g := deafWorld(t)
	err := w.passing("exec", async(func() error {
		_, err := w.Exec(w.me(), id, bothy.ExecRequest{Command: bothy.Command{Line: "x"}, TimeoutSeconds: 5})
		return err
	}))
	wantCode(t, err, bothy.CodeGuest)
	if took := time.Duration(g.took.Load()); took < 30*time.Second || took > 45*time.Second {
		t.Errorf("a command that does not end is given up after %v", took)
	}
	ctx, leave := context.WithCancel(w.me())
	code := async(func() error {
		_, err := w.RunCode(ctx, id, bothy.CodeRequest{Code: "x", TimeoutSeconds: 5})
		return err
	})
	for range 100 {
		time.Sleep(time.Millisecond)
		w.clock.pass(time.Second)
	}
	select {
	case err := <-code:
		t.Fatalf("code that waits for other code is given up: %v", err)
	default:
	}
	leave()
	wantCode(t, <-code, bothy.CodeCommandCancelled)
}
