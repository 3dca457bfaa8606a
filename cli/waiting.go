package cli

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
)

// quiet is how long a person waits before being told why.
const quiet = 1500 * time.Millisecond

// create creates a sandbox. If that takes long, it shows what the server is doing, such as
// fetching a kernel for its first virtual machine.
func (a *app) create(ctx context.Context, s *session, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	watched, stop := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		a.showPreparation(watched, s, time.Now())
	}()
	defer func() { stop(); <-told }()
	return s.sandboxes.Create(ctx, req)
}

// showPreparation shows the steps that a slow start waits for, until ctx ends.
// It is not an error if there are none.
func (a *app) showPreparation(ctx context.Context, s *session, begun time.Time) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(quiet):
	}
	line := newProgress(a.stderr)
	defer line.done()
	if line.live {
		line.draw("starting the sandbox")
	}
	_ = s.events.Events(ctx, bothy.EventFilter{Follow: true}, func(e bothy.Event) error {
		// The server's clock may be a little behind.
		if e.Type == bothy.EventEnginePreparing && e.Time.After(begun.Add(-time.Second)) {
			line.show("prepare the engine "+e.Data["engine"], e.Data["step"])
		}
		return nil
	})
}

// show shows a step of unknown progress.
func (p *progress) show(step, message string) {
	if p.live {
		p.draw(join(step, message))
		return
	}
	p.step(step, message, 0)
}
