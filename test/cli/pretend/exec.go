package pretend

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/bothy-dev/bothy"
)

// process is a command of a sandbox with all its output.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	info  bothy.ProcessInfo
	began time.Time

	mu     sync.Mutex
	more   *sync.Cond
	events []bothy.ExecEvent
	offset int64
}

func (s *sandbox) killAll() {
	for _, p := range s.processes {
		p.kill(syscall.SIGKILL)
	}
}

func (p *process) kill(signal syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, signal)
}

// output is one stream of a process, as a writer.
type output struct {
	p      *process
	stream string
}

func (o output) Write(b []byte) (int, error) {
	e := bothy.ExecEvent{Stream: o.stream, Data: string(b)}
	if !utf8.Valid(b) {
		e.Data, e.Encoding = base64.StdEncoding.EncodeToString(b), "base64"
	}
	o.p.add(e, len(b))
	return len(b), nil
}

func (p *process) add(e bothy.ExecEvent, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Offset, e.PID = p.offset, p.info.PID
	p.offset += int64(n)
	p.events = append(p.events, e)
	p.more.Broadcast()
}

// follow calls fn for every event from the first on, until the final one or
// the end of ctx.
func (p *process) follow(ctx context.Context, fn func(bothy.ExecEvent) error) error {
	stop := context.AfterFunc(ctx, p.more.Broadcast)
	defer stop()
	for i := 0; ; i++ {
		e, err := p.event(ctx, i)
		if err != nil {
			return err
		}
		if err := fn(e); err != nil || e.IsFinal {
			return err
		}
	}
}

func (p *process) event(ctx context.Context, i int) (bothy.ExecEvent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.events) <= i {
		if ctx.Err() != nil {
			return bothy.ExecEvent{}, ctx.Err()
		}
		p.more.Wait()
	}
	return p.events[i], nil
}

// Exec is the bothy.ExecService of a world.
type Exec struct{ *World }

func (w Exec) start(id string, req bothy.ExecRequest) (*process, error) {
	s, err := w.find(id)
	if err != nil {
		return nil, err
	}
	argv := req.Command.Argv()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeCommandNotFound, "the command %q was not found", argv[0]).WithHint("Check its name.")
	}
	p := &process{cmd: exec.Command(path, argv[1:]...), began: time.Now()}
	p.more = sync.NewCond(&p.mu)
	p.cmd.Dir = filepath.Join(s.root, bothy.DefaultCwd, req.Cwd)
	p.cmd.Env = append(os.Environ(), "HOME="+s.root)
	for _, env := range []map[string]string{s.Env, req.Env} {
		for k, v := range env {
			p.cmd.Env = append(p.cmd.Env, k+"="+v)
		}
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stdout, p.cmd.Stderr = output{p, "stdout"}, output{p, "stderr"}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nextPID++
	p.info = bothy.ProcessInfo{PID: w.nextPID, Command: argv, Running: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	s.processes[p.info.PID] = p
	go p.wait(req.TimeoutSeconds)
	return p, nil
}

func (p *process) wait(timeout float64) {
	var timedOut atomic.Bool
	if timeout > 0 {
		t := time.AfterFunc(time.Duration(timeout*float64(time.Second)), func() {
			timedOut.Store(true)
			p.kill(syscall.SIGKILL)
		})
		defer t.Stop()
	}
	err := p.cmd.Wait()
	code := p.cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
			code = 128 + int(status.Signal())
		}
	}
	p.mu.Lock()
	p.info.Running, p.info.ExitCode = false, &code
	p.mu.Unlock()
	p.add(bothy.ExecEvent{IsFinal: true, ExitCode: code, TimedOut: timedOut.Load(), DurationMS: time.Since(p.began).Milliseconds()}, 0)
}

func (p *process) giveStdin(text string) {
	_, _ = io.WriteString(p.stdin, text)
	_ = p.stdin.Close()
}

// Exec runs a command.
func (w Exec) Exec(ctx context.Context, id string, req bothy.ExecRequest) (*bothy.ExecResult, error) {
	if req.Background {
		p, err := w.start(id, req)
		if err != nil {
			return nil, err
		}
		return &bothy.ExecResult{PID: p.info.PID}, nil
	}
	var result bothy.ExecResult
	var out, errOut strings.Builder
	err := w.ExecStream(ctx, id, req, func(e bothy.ExecEvent) error {
		switch e.Stream {
		case "stdout":
			out.WriteString(e.Data)
		case "stderr":
			errOut.WriteString(e.Data)
		}
		result.PID, result.ExitCode, result.TimedOut, result.DurationMS = e.PID, e.ExitCode, e.TimedOut, e.DurationMS
		return nil
	})
	result.Stdout, result.Stderr = out.String(), errOut.String()
	return &result, err
}

// ExecStream runs a command and follows it.
func (w Exec) ExecStream(ctx context.Context, id string, req bothy.ExecRequest, fn func(bothy.ExecEvent) error) error {
	p, err := w.start(id, req)
	if err != nil {
		return err
	}
	go p.giveStdin(req.Stdin)
	err = p.follow(ctx, fn)
	if err != nil {
		p.kill(syscall.SIGKILL)
	}
	return err
}

func (w Exec) process(id string, pid int) (*process, error) {
	s, err := w.find(id)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := s.processes[pid]
	if !ok {
		return nil, bothy.Errorf(bothy.CodeProcessNotFound, "no process %d in sandbox %s", pid, id).WithHint("`bothy ps` lists them.")
	}
	return p, nil
}

// Processes lists what was started.
func (w Exec) Processes(_ context.Context, id string) ([]bothy.ProcessInfo, error) {
	s, err := w.find(id)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []bothy.ProcessInfo{}
	for _, p := range s.processes {
		p.mu.Lock()
		info := p.info
		info.OutputEnd = p.offset
		p.mu.Unlock()
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b bothy.ProcessInfo) int { return a.PID - b.PID })
	return list, nil
}

// AllProcesses lists what was started, and one more.
func (w Exec) AllProcesses(ctx context.Context, id string) ([]bothy.ProcessInfo, error) {
	list, err := w.Processes(ctx, id)
	if err != nil {
		return nil, err
	}
	return append(list, bothy.ProcessInfo{
		PID: 4001, Command: []string{"sleep", "60"}, User: "user", Running: true,
		Unmanaged: true, ParentPID: 1, CPUSeconds: 0.5, MemoryBytes: 1 << 20,
	}), nil
}

// Output follows a process.
func (w Exec) Output(ctx context.Context, id string, pid int, from int64, fn func(bothy.ExecEvent) error) error {
	p, err := w.process(id, pid)
	if err != nil {
		return err
	}
	return p.follow(ctx, func(e bothy.ExecEvent) error {
		if e.Offset < from && !e.IsFinal {
			return nil
		}
		return fn(e)
	})
}

// Stdin writes to a process.
func (w Exec) Stdin(_ context.Context, id string, pid int, data []byte, eof bool) error {
	p, err := w.process(id, pid)
	if err != nil {
		return err
	}
	if _, err := p.stdin.Write(data); err != nil {
		return bothy.Errorf(bothy.CodeConflict, "process %d no longer reads its input", pid)
	}
	if eof {
		_ = p.stdin.Close()
	}
	return nil
}

// Signal sends a signal.
func (w Exec) Signal(_ context.Context, id string, pid, signal int) error {
	p, err := w.process(id, pid)
	if err == nil {
		p.kill(syscall.Signal(signal))
	}
	return err
}
