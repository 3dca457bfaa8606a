package apitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// process is a background command. It echoes its input until it is killed or its input ends.
type process struct {
	info   bothy.ProcessInfo
	output []byte
	// changed is closed and replaced whenever something happens to it.
	changed chan struct{}
}

func (p *process) touch() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// run implements the commands of the fake.
func run(line string) (stdout, stderr string, exit int) {
	name, rest, _ := strings.Cut(line, " ")
	switch name {
	case "echo":
		return rest + "\n", "", 0
	case "fail":
		return "", "it failed\n", 3
	case "big":
		return strings.Repeat("x", 20<<20), "", 0
	}
	return "", name + ": command not found\n", 127
}

func line(c bothy.Command) string {
	if c.Args != nil {
		return strings.Join(c.Args, " ")
	}
	return c.Line
}

func (w *World) begin(ctx context.Context, id string, req bothy.ExecRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Executed = req
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err == nil {
		err = b.awake()
	}
	if line(req.Command) == "panic" {
		panic("the fake was told to panic")
	}
	return err
}

// awake fails if a sandbox is paused.
func (b *sandbox) awake() error {
	if b.State != bothy.StatePaused {
		return nil
	}
	return bothy.Errorf(bothy.CodeSandboxPaused, "the sandbox %s is paused", b.ID).WithHint("Resume it first: POST /v1/sandboxes/%s/resume.", b.ID)
}

// Started reports whether a command was the last to be started.
func (w *World) Started(command string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return line(w.Executed.Command) == command
}

func cancelled(ctx context.Context) error {
	return bothy.Errorf(bothy.CodeCommandCancelled, "the caller left").WithHint("Stay.").Because(ctx.Err())
}

// Exec implements bothy.ExecService. The command "wait" waits to be cancelled, or for Finish to
// be closed, and "cut" is cut off by a pause.
func (w *World) Exec(ctx context.Context, id string, req bothy.ExecRequest) (*bothy.ExecResult, error) {
	if err := w.begin(ctx, id, req); err != nil {
		return nil, err
	}
	if req.Background {
		return w.spawn(id, req), nil
	}
	if line(req.Command) == "cut" {
		bothy.Begun(ctx)
		return nil, bothy.Errorf(bothy.CodeSandboxPaused, "sandbox %s was paused meanwhile", id).WithHint("Resume it.")
	}
	if line(req.Command) == "wait" {
		select {
		case <-ctx.Done():
			w.Canceled <- id
			return nil, cancelled(ctx)
		case <-w.Finish:
		}
	}
	var r bothy.ExecResult
	r.Stdout, r.Stderr, r.ExitCode = run(line(req.Command))
	r.Stdout += req.Stdin
	r.PID, r.DurationMS = 7, 12
	return &r, nil
}

func (w *World) spawn(id string, req bothy.ExecRequest) *bothy.ExecResult {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.sandboxes[id]
	pid := 100 + len(b.processes)
	b.processes[pid] = &process{
		info:    bothy.ProcessInfo{PID: pid, Command: req.Command.Argv(), Running: true},
		changed: make(chan struct{}),
	}
	return &bothy.ExecResult{PID: pid}
}

// ExecStream implements bothy.ExecService. The command "wait" writes "ready" and then waits to
// be cancelled.
func (w *World) ExecStream(ctx context.Context, id string, req bothy.ExecRequest, fn func(bothy.ExecEvent) error) error {
	if err := w.begin(ctx, id, req); err != nil {
		return err
	}
	if line(req.Command) == "wait" {
		if err := fn(bothy.ExecEvent{Stream: "stdout", Data: "ready\n"}); err != nil {
			return err
		}
		<-ctx.Done()
		w.Canceled <- id
		return cancelled(ctx)
	}
	if line(req.Command) == "lost" {
		_ = fn(bothy.ExecEvent{Stream: "stdout", Data: "ready\n"})
		return bothy.Errorf(bothy.CodeGuest, "the guest of %s was lost", id).WithHint("Make another.")
	}
	stdout, stderr, exit := run(line(req.Command))
	var offset int64
	for _, e := range []bothy.ExecEvent{{Stream: "stdout", Data: stdout}, {Stream: "stderr", Data: stderr}} {
		if e.Data == "" {
			continue
		}
		e.Offset = offset
		offset += int64(len(e.Data))
		if err := fn(e); err != nil {
			return err
		}
	}
	return fn(bothy.ExecEvent{IsFinal: true, ExitCode: exit, DurationMS: 12, PID: 7})
}

// Processes implements bothy.ExecService.
func (w *World) Processes(ctx context.Context, id string) ([]bothy.ProcessInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	var all []bothy.ProcessInfo
	for _, p := range b.processes {
		all = append(all, p.info)
	}
	slices.SortFunc(all, func(x, y bothy.ProcessInfo) int { return x.PID - y.PID })
	return all, nil
}

// AllProcesses implements bothy.ExecService, with one process that was not started
// through the API.
func (w *World) AllProcesses(ctx context.Context, id string) ([]bothy.ProcessInfo, error) {
	all, err := w.Processes(ctx, id)
	if err != nil {
		return nil, err
	}
	began := Epoch
	return append(all, bothy.ProcessInfo{
		PID: 4001, Command: []string{"sleep", "60"}, User: "user", Running: true,
		Unmanaged: true, ParentPID: 1, StartedAt: &began, CPUSeconds: 0.5, MemoryBytes: 1 << 20, Ports: []int{8000},
	}), nil
}

// process finds a process. The caller holds w.mu.
func (w *World) process(ctx context.Context, id string, pid int, scope bothy.Scope) (*process, error) {
	b, err := w.get(ctx, id, scope)
	if err == nil {
		err = b.awake()
	}
	if err != nil {
		return nil, err
	}
	p := b.processes[pid]
	if p == nil {
		return nil, bothy.Errorf(bothy.CodeProcessNotFound, "there is no process %d in %s", pid, id).WithHint("List them.")
	}
	return p, nil
}

// Wait implements bothy.ExecService. Something listens on port 8000 alone, and every URL and file
// is there; anything else is timed out at once.
func (w *World) Wait(ctx context.Context, id string, req bothy.WaitRequest) (*bothy.WaitResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Waited = req
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err == nil {
		err = b.awake()
	}
	if err != nil {
		return nil, err
	}
	switch {
	case req.Path != "":
		return &bothy.WaitResult{Line: "the " + req.Log}, nil
	case req.URL != "":
		return &bothy.WaitResult{Status: 200}, nil
	case req.Port != 0:
		return &bothy.WaitResult{TimedOut: req.Port != 8000}, nil
	}
	p, err := w.process(ctx, id, req.PID, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if req.Log == "" {
		return &bothy.WaitResult{TimedOut: p.info.Running, ExitCode: p.info.ExitCode}, nil
	}
	for line := range strings.Lines(string(p.output)) {
		if strings.Contains(line, req.Log) {
			return &bothy.WaitResult{Line: strings.TrimSuffix(line, "\n")}, nil
		}
	}
	if !p.info.Running {
		return nil, bothy.Errorf(bothy.CodeConflict, "process %d ended with exit code %d before what is waited for came", req.PID, *p.info.ExitCode)
	}
	return &bothy.WaitResult{TimedOut: true}, nil
}

// Output implements bothy.ExecService.
func (w *World) Output(ctx context.Context, id string, pid int, from int64, fn func(bothy.ExecEvent) error) error {
	for {
		w.mu.Lock()
		p, err := w.process(ctx, id, pid, bothy.ScopeSandboxesRead)
		if err != nil {
			w.mu.Unlock()
			return err
		}
		data, info, changed := string(p.output[min(from, int64(len(p.output))):]), p.info, p.changed
		w.mu.Unlock()
		if data != "" {
			if err := fn(bothy.ExecEvent{Stream: "stdout", Data: data, Offset: from}); err != nil {
				return err
			}
			from += int64(len(data))
		}
		if !info.Running {
			return fn(bothy.ExecEvent{IsFinal: true, ExitCode: *info.ExitCode})
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *process) end(code int) {
	p.info.Running, p.info.ExitCode = false, &code
}

// Stdin implements bothy.ExecService.
func (w *World) Stdin(ctx context.Context, id string, pid int, data []byte, eof bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, err := w.process(ctx, id, pid, bothy.ScopeSandboxesWrite)
	if err != nil {
		return err
	}
	p.output = append(p.output, data...)
	p.info.OutputEnd = int64(len(p.output))
	if eof {
		p.end(0)
	}
	p.touch()
	return nil
}

// Signal implements bothy.ExecService. Every signal ends a process.
func (w *World) Signal(ctx context.Context, id string, pid int, signal int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left != nil && pid == w.left.PID() {
		go w.left.Close()
		return nil
	}
	p, err := w.process(ctx, id, pid, bothy.ScopeSandboxesWrite)
	if err != nil {
		return err
	}
	p.end(128 + signal)
	p.touch()
	return nil
}

// Terminal implements bothy.ExecService. It echoes, reports every change of the
// window, and ends with code 4 at the line "exit".
func (w *World) Terminal(ctx context.Context, id string, req bothy.TerminalRequest) (bothy.Terminal, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.get(ctx, id, bothy.ScopeSandboxesWrite); err != nil {
		return nil, err
	}
	if req.Process != 0 {
		if w.left == nil || req.Process != w.left.PID() {
			return nil, bothy.Errorf(bothy.CodeProcessNotFound, "there is no process %d", req.Process).WithHint("List them.")
		}
		return w.left, nil
	}
	t := &terminal{done: make(chan struct{}), closed: make(chan struct{}), world: w}
	t.cond.L = &t.mu
	fmt.Fprintf(&t.out, "%dx%d %s %s\r\n", req.Cols, req.Rows, req.Command.Line, req.Env["NAME"])
	return t, nil
}

// Detach implements bothy.Detacher. The terminal can then be joined.
func (t *terminal) Detach() error {
	next := &terminal{done: make(chan struct{}), closed: make(chan struct{}), world: t.world}
	next.cond.L = &next.mu
	t.world.mu.Lock()
	t.world.left = next
	t.world.mu.Unlock()
	return t.Close() // this handle gets no more output
}

type terminal struct {
	world  *World
	mu     sync.Mutex
	cond   sync.Cond
	out    bytes.Buffer
	ended  bool
	done   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (t *terminal) PID() int { return 42 }

func (t *terminal) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.out.Len() == 0 && !t.ended {
		t.cond.Wait()
	}
	if t.out.Len() == 0 {
		return 0, io.EOF
	}
	return t.out.Read(p)
}

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out.Write(p)
	if strings.Contains(string(p), "exit") && !t.ended {
		t.ended = true
		close(t.done)
	}
	t.cond.Broadcast()
	return len(p), nil
}

func (t *terminal) Resize(cols, rows int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(&t.out, "resized to %dx%d\r\n", cols, rows)
	t.cond.Broadcast()
	return nil
}

func (t *terminal) Wait() (int, error) {
	<-t.done
	return 4, nil
}

func (t *terminal) Close() error {
	t.once.Do(func() { close(t.closed) })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.cond.Broadcast()
	return nil
}

// HungUp waits until the terminal that was detached is hung up.
func (w *World) HungUp(t interface{ Fatal(...any) }) {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		left := w.left
		w.mu.Unlock()
		if left != nil {
			select {
			case <-left.closed:
				return
			case <-time.After(20 * time.Second):
				t.Fatal("it was not hung up")
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("it was not detached")
		}
	}
}
