package lifecycle_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

// visitor is a request that arrives while its sandbox is being paused.
type visitor struct {
	ask    func(context.Context) error
	answer chan error
}

// visits sends requests at a step of the next pause. Once all of them wait, the step returns err.
func (w *world) visits(id, step string, err error, asks ...func(context.Context) error) []*visitor {
	w.t.Helper()
	var all []*visitor
	for _, ask := range asks {
		all = append(all, &visitor{ask, make(chan error, 1)})
	}
	w.t.Cleanup(failpoint.Set(step, func() error {
		if w.get(id).State != bothy.StatePausing {
			return nil
		}
		for _, v := range all {
			go func() { v.answer <- v.ask(w.me()) }()
		}
		eventually(w.t, "they wait", func() bool { return w.WaitingFor(id) == 1+len(all) })
		return err
	}))
	return all
}

func (w *world) run(id, line string) func(context.Context) error {
	return func(ctx context.Context) error {
		res, err := w.Exec(ctx, id, bothy.ExecRequest{Command: bothy.Command{Line: line}})
		if err == nil && res.Stdout != line {
			err = errors.New("unexpected output: " + res.Stdout)
		}
		return err
	}
}

func answers(t *testing.T, all []*visitor) (errs []error) {
	t.Helper()
	for _, v := range all {
		select {
		case err := <-v.answer:
			errs = append(errs, err)
		case <-time.After(time.Minute):
			t.Fatal("a request was never answered")
		}
	}
	return errs
}

// ran lists the commands of all guests.
func (g *guests) ran() (lines []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		one.mu.Lock()
		lines = append(lines, one.lines...)
		one.mu.Unlock()
	}
	slices.Sort(lines)
	return lines
}

func (g *guests) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.all)
}

func TestRequestsDuringAPauseWaitAndResume(t *testing.T) {
	pauses := map[string]func(*world, *bothy.Sandbox){
		"idle": func(w *world, _ *bothy.Sandbox) { w.clock.pass(2 * time.Minute) },
		"told": func(w *world, sb *bothy.Sandbox) { w.pause(sb.ID) },
	}
	for name, pause := range pauses {
		for _, step := range []string{"lifecycle.freeze", "lifecycle.frozen", "lifecycle.sealed", "lifecycle.move.paused"} {
			t.Run(name+" at "+step, func(t *testing.T) {
				w := newWorld(t)
				sb := w.create(bothy.SandboxCreate{IdleSeconds: 60, AutoResume: true, TimeoutSeconds: seconds(0)})
				first := w.guests.last()
				all := w.visits(sb.ID, step, nil, w.run(sb.ID, "one"), w.run(sb.ID, "two"), func(ctx context.Context) error {
					_, err := w.CreateSnapshot(ctx, sb.ID, bothy.SnapshotCreate{Name: "three"})
					return err
				})
				pause(w, sb)
				for _, err := range answers(t, all) {
					if err != nil {
						t.Error(err)
					}
				}
				if got := w.guests.ran(); !slices.Equal(got, []string{"one", "two"}) || len(first.lines) != 0 {
					t.Errorf("ran %v, of which %v during the pause", got, first.lines)
				}
				if got := w.get(sb.ID); got.State != bothy.StateRunning || w.guests.count() != 2 {
					t.Errorf("it is %s after %d starts", got.State, w.guests.count())
				}
			})
		}
	}
}

func TestRequestsDuringAPauseWithoutAutoResumeAreRefused(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	all := w.visits(sb.ID, "lifecycle.frozen", nil, w.run(sb.ID, "one"), func(ctx context.Context) error {
		_, err := w.CreateSnapshot(ctx, sb.ID, bothy.SnapshotCreate{Name: "two"})
		return err
	})
	w.pause(sb.ID)
	for _, err := range answers(t, all) {
		wantCode(t, err, bothy.CodeSandboxPaused)
	}
	if got := w.guests.ran(); len(got) != 0 {
		t.Errorf("ran %v", got)
	}
}

func TestRequestsDuringAFailingPauseAreServed(t *testing.T) {
	for _, step := range []string{"lifecycle.freeze", "lifecycle.frozen", "lifecycle.sealed", "lifecycle.move.paused"} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			sb := w.create(bothy.SandboxCreate{})
			boom := errors.New("boom")
			all := w.visits(sb.ID, step, boom, w.run(sb.ID, "one"))
			if _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); !errors.Is(err, boom) {
				t.Fatalf("the pause ended with %v", err)
			}
			if err := answers(t, all)[0]; err != nil {
				t.Error(err)
			}
			if err := w.run(sb.ID, "two")(w.me()); err != nil {
				t.Errorf("a later pause: %v", err)
			}
			if got := w.guests.last().lines; !slices.Equal(got, []string{"one", "two"}) || w.guests.count() != 1 {
				t.Errorf("ran %v in the last of %d machines", got, w.guests.count())
			}
		})
	}
}

// An idle sandbox whose pause fails keeps running, even if the pause fails before it begins.
func TestIdlePauseThatFails(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{IdleSeconds: 60, AutoResume: true, TimeoutSeconds: seconds(0)})
	remove := failpoint.Set("lifecycle.move.pausing", func() error { return errors.New("boom") })
	w.clock.pass(2 * time.Minute)
	remove()
	if err := w.run(sb.ID, "one")(w.me()); err != nil {
		t.Error(err)
	}
	if got := w.get(sb.ID); got.State != bothy.StateRunning || w.guests.count() != 1 {
		t.Errorf("it is %s after %d starts", got.State, w.guests.count())
	}
}

func TestWaitingForAPauseCanBeCancelled(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{AutoResume: true})
	ctx, cancel := context.WithCancel(w.me())
	answer := make(chan error, 1)
	t.Cleanup(failpoint.Set("lifecycle.frozen", func() error {
		go func() { answer <- w.run(sb.ID, "one")(ctx) }()
		eventually(t, "it waits", func() bool { return w.WaitingFor(sb.ID) == 2 })
		cancel()
		eventually(t, "it has left", func() bool { return w.WaitingFor(sb.ID) == 1 })
		return nil
	}))
	w.pause(sb.ID)
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Errorf("the request ended with %v", err)
	}
	if got := w.get(sb.ID); got.State != bothy.StatePaused {
		t.Errorf("it is %s", got.State)
	}
}

// A request that resumes a sandbox keeps the new machine in use, not the one before.
func TestARequestThatResumesKeepsTheMachineInUse(t *testing.T) {
	for name, open := range map[string]func(context.Context, *world, string) (io.Closer, error){
		"file": func(ctx context.Context, w *world, id string) (io.Closer, error) {
			r, _, err := w.Files().Read(ctx, id, "/f", "")
			return r, err
		},
		"terminal": func(ctx context.Context, w *world, id string) (io.Closer, error) {
			return w.Terminal(ctx, id, bothy.TerminalRequest{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			sb := w.create(bothy.SandboxCreate{IdleSeconds: 60, AutoResume: true, TimeoutSeconds: seconds(0)})
			var opened io.Closer
			all := w.visits(sb.ID, "lifecycle.frozen", nil, func(ctx context.Context) (err error) {
				opened, err = open(ctx, w, sb.ID)
				return err
			})
			w.clock.pass(2 * time.Minute)
			if err := answers(t, all)[0]; err != nil {
				t.Fatal(err)
			}
			w.clock.pass(2 * time.Minute)
			m, err := w.Metrics(w.me(), sb.ID)
			if err != nil || len(m.HeldAwakeBy) != 1 {
				t.Fatalf("the metrics are %+v, %v", m, err)
			}
			opened.Close()
			w.visits(sb.ID, "lifecycle.frozen", nil)
			w.clock.pass(2 * time.Minute)
			w.clock.pass(2 * time.Minute)
			if got := w.get(sb.ID); got.State != bothy.StatePaused {
				t.Errorf("it is %s", got.State)
			}
		})
	}
}

func (g *guest) Read(context.Context, string, string) (io.ReadCloser, *bothy.FileInfo, error) {
	return io.NopCloser(strings.NewReader("text")), &bothy.FileInfo{}, nil
}

type terminal struct{ bothy.Terminal }

func (terminal) Close() error { return nil }

func (g *guest) Terminal(context.Context, bothy.TerminalRequest) (bothy.Terminal, error) {
	return terminal{}, nil
}
