package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// Target is the server to measure and what to request of it.
type Target struct {
	Client *client.Client
	// Template is what sandboxes start from, and Engine what they run on; empty means the
	// server's default.
	Template string
	Engine   string
}

// True is the shortest of all commands.
var True = bothy.Command{Args: []string{"/bin/true"}}

// Create makes a sandbox and returns it with a function that ends it.
func (t Target) Create(ctx context.Context, req bothy.SandboxCreate) (*bothy.Sandbox, func(), error) {
	if req.Template == "" && req.SnapshotID == "" {
		req.Template = t.Template
	}
	if req.Engine == "" && req.SnapshotID == "" {
		req.Engine = t.Engine
	}
	sb, err := t.Client.Sandboxes.Create(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	return sb, func() { _ = t.Client.Sandboxes.Terminate(context.WithoutCancel(ctx), sb.ID) }, nil
}

// Run runs a command and fails unless it ends with 0.
func (t Target) Run(ctx context.Context, id string, c bothy.Command) (*bothy.ExecResult, error) {
	r, err := t.Client.Exec.Exec(ctx, id, bothy.ExecRequest{Command: c})
	if err != nil {
		return nil, err
	}
	if r.ExitCode != 0 {
		return nil, fmt.Errorf("%v ended with %d: %s", c.Argv(), r.ExitCode, r.Stderr)
	}
	return r, nil
}

// Names of the measures of a start.
const (
	CreateExecCold = "create_exec_cold"
	WholeLifeCold  = "create_exec_delete_cold"
	CreateCold     = "create_cold"
	CreatePool     = "create_pool"
	CreateExecPool = "create_exec_pool"
)

// StartCold is a subject: one sandbox from the request to the end of its first
// command, and then to its own end.
func StartCold(t Target) Subject {
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		begun := time.Now()
		sb, end, err := t.Create(ctx, bothy.SandboxCreate{})
		if err != nil {
			return err
		}
		record(CreateCold, Since(begun))
		_, err = t.Run(ctx, sb.ID, True)
		record(CreateExecCold, Since(begun))
		end()
		record(WholeLifeCold, Since(begun))
		return err
	}}
}

// RunOf is a subject whose program does everything in one go: it starts, runs a command, and
// leaves nothing.
func RunOf(name string, run func(context.Context) error) Subject {
	return Subject{Name: name, Once: func(ctx context.Context, record Record) error {
		begun := time.Now()
		err := run(ctx)
		took := Since(begun)
		for _, measure := range []string{CreateExecCold, CreateExecPool, WholeLifeCold} {
			record(measure, took)
		}
		return err
	}}
}

// StartPool is a subject: the same from the pool, once a sandbox is ready there.
func StartPool(t Target) Subject {
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		if err := t.AwaitPool(ctx); err != nil {
			return err
		}
		begun := time.Now()
		sb, end, err := t.Create(ctx, bothy.SandboxCreate{})
		if err != nil {
			return err
		}
		defer end()
		record(CreatePool, Since(begun))
		_, err = t.Run(ctx, sb.ID, True)
		record(CreateExecPool, Since(begun))
		return err
	}}
}

// Interactive is one sandbox by the public method of ComputeSDK: the time from the request until
// its first command has answered, in milliseconds. Its end is not timed, and nothing is retried.
func (t Target) Interactive(ctx context.Context) (float64, error) {
	begun := time.Now()
	sb, end, err := t.Create(ctx, bothy.SandboxCreate{})
	if err != nil {
		return 0, err
	}
	defer end()
	r, err := t.Run(ctx, sb.ID, bothy.Command{Args: []string{"/bin/echo", "benchmark"}})
	took := Since(begun)
	if err == nil && r.Stdout != "benchmark\n" {
		err = fmt.Errorf("the command printed %q", r.Stdout)
	}
	return took, err
}

// ExecIn is a subject: one command in a running sandbox.
func ExecIn(t Target, id string) Subject {
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		begun := time.Now()
		_, err := t.Run(ctx, id, True)
		record("exec", Since(begun))
		return err
	}}
}
