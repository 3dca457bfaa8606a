package lifecycle_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

func TestTheLastCommandTellsWhatIsWrongWithASandbox(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	g := w.guests.last()
	for _, c := range []struct {
		what string
		req  bothy.ExecRequest
		res  bothy.ExecResult
		err  error
		want bothy.HealthStatus
	}{
		{what: "no shell", err: bothy.Errorf(bothy.CodeCommandNotFound, "the sandbox has no shell"), want: bothy.HealthNoShell},
		{what: "a missing command", req: bothy.ExecRequest{Command: bothy.Command{Args: []string{"nothing"}}}, err: bothy.Errorf(bothy.CodeCommandNotFound, "no"), want: bothy.HealthNoShell},
		{what: "no user", err: bothy.Errorf(bothy.CodeUserNotFound, "there is no user"), want: bothy.HealthNoUser},
		{what: "a wrong user", req: bothy.ExecRequest{User: "fred"}, err: bothy.Errorf(bothy.CodeUserNotFound, "there is no user"), want: bothy.HealthNoUser},
		{what: "no folder", err: bothy.Errorf(bothy.CodeInvalid, "the working directory \"/workspace\" is closed"), want: bothy.HealthNoCwd},
		{what: "a wrong argument", err: bothy.Errorf(bothy.CodeInvalid, "no"), want: bothy.HealthNoCwd},
		{what: "processes", err: bothy.Errorf(bothy.CodeCapacity, "too many"), want: bothy.HealthManyProcesses},
		{what: "memory", res: bothy.ExecResult{ExitCode: 137, OOMKilled: true, Hint: "Use less."}, want: bothy.HealthOutOfMemory},
		{what: "a time-out", res: bothy.ExecResult{TimedOut: true, Hint: "Give it longer."}, want: bothy.HealthOutOfMemory},
		{what: "disk", res: bothy.ExecResult{ExitCode: 1, Hint: "The disk is full."}, want: bothy.HealthDiskFull},
		{what: "a long output and a failure", res: bothy.ExecResult{ExitCode: 1, Truncated: true, Hint: "Some is left out."}, want: bothy.HealthDiskFull},
		{what: "a long output", res: bothy.ExecResult{Truncated: true, Hint: "Some is left out."}},
		{what: "a failure", res: bothy.ExecResult{ExitCode: 1}},
		{what: "nothing"},
	} {
		g.mu.Lock()
		g.onExec = func() error { return c.err }
		g.run = func(bothy.ExecRequest) *bothy.ExecResult { return &c.res }
		g.mu.Unlock()
		if c.req.Command.Args == nil {
			c.req.Command.Line = "x"
		}
		_, _ = w.Exec(w.me(), sb.ID, c.req)
		got := bothy.Health{}
		if h := w.get(sb.ID).Health; h != nil {
			got = *h
		}
		if got.Status != c.want {
			t.Errorf("after %s: %+v, want %q", c.what, got, c.want)
		}
		if p, err := w.List(w.me(), bothy.SandboxFilter{}); err != nil || len(p.Items) != 1 || !reflect.DeepEqual(p.Items[0].Health, w.get(sb.ID).Health) {
			t.Errorf("after %s a list has %+v, %v", c.what, p, err)
		}
	}
	w.wantEvent(sb.ID, bothy.EventSandboxUnhealthy)
}

func TestTheSameTroubleIsToldOnceAMinute(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	g := w.guests.last()
	g.run = func(bothy.ExecRequest) *bothy.ExecResult {
		return &bothy.ExecResult{ExitCode: 1, Hint: "The disk is full."}
	}
	for _, pass := range []time.Duration{0, 0, 0, 2 * time.Minute, 0} {
		w.clock.pass(pass)
		if _, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	told := 0
	err := w.Events(w.me(), bothy.EventFilter{}, func(e bothy.Event) error {
		if e.Type == bothy.EventSandboxUnhealthy && e.Data["status"] == "disk_full" {
			told++
		}
		return nil
	})
	if err != nil || told != 2 {
		t.Errorf("it was told %d times, %v", told, err)
	}
}
