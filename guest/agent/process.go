package agent

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
	"github.com/bothy-dev/bothy/guest/command"
	"github.com/bothy-dev/bothy/guest/procfs"
	"github.com/bothy-dev/bothy/guest/wire/processpb"
)

// headerKeepAlive asks for a keep-alive message every n seconds.
const headerKeepAlive = "Keepalive-Ping-Interval"

type processService struct{ a *Agent }

func (s *processService) List(ctx context.Context, req *processpb.ListRequest) (*processpb.ListResponse, error) {
	res := &processpb.ListResponse{}
	for _, p := range s.a.commands.List(req.All) {
		if !p.Spec().Internal {
			res.Processes = append(res.Processes, processInfo(p))
		}
	}
	if req.Table {
		return res, s.addTable(res)
	}
	return res, nil
}

// addTable adds the usage of each running process, and the processes that are not commands.
func (s *processService) addTable(res *processpb.ListResponse) error {
	table, err := s.a.commands.Table()
	if err != nil {
		return err
	}
	commands := make(map[uint32]*processpb.ProcessInfo, len(res.Processes))
	for _, p := range res.Processes {
		if p.Running {
			commands[p.Pid] = p
		}
	}
	names := s.a.accounts.Names()
	listening := procfs.Listening()
	booted := time.Now().Add(-time.Duration(procfs.Uptime() * float64(time.Second)))
	for _, x := range table {
		p := commands[uint32(x.PID)]
		if p == nil {
			p = unmanaged(x, names)
			res.Processes = append(res.Processes, p)
		}
		p.Parent, p.MemoryBytes, p.CpuMs = uint32(x.PPID), x.RSSBytes, x.CPUTicks*10
		for _, port := range procfs.Ports(x.PID, listening) {
			if len(p.Ports) < 2*bothy.MaxProcessPorts {
				p.Ports = binary.BigEndian.AppendUint16(p.Ports, port)
			}
		}
		p.StartedUnixMs = booted.Add(time.Duration(x.StartTicks) * 10 * time.Millisecond).UnixMilli()
	}
	return nil
}

func unmanaged(x procfs.Process, names account.Names) *processpb.ProcessInfo {
	p := &processpb.ProcessInfo{Pid: uint32(x.PID), Running: true, Unmanaged: true, Config: &processpb.ProcessConfig{Cmd: x.Name}}
	if argv := procfs.Command(x.PID); len(argv) > 0 {
		p.Config.Cmd, p.Config.Args = strings.ToValidUTF8(argv[0], "\ufffd"), argv[1:]
		for i, arg := range p.Config.Args {
			p.Config.Args[i] = strings.ToValidUTF8(arg, "\ufffd")
		}
	}
	p.Config.Cmd = strings.ToValidUTF8(p.Config.Cmd, "\ufffd")
	if uid, err := procfs.UID(x.PID); err == nil {
		p.User = names.User(uid)
	}
	return p
}

func processInfo(p *command.Process) *processpb.ProcessInfo {
	spec := p.Spec()
	info := &processpb.ProcessInfo{
		Config: &processpb.ProcessConfig{
			Cmd: spec.Argv[0], Args: spec.Argv[1:], Envs: spec.Asked.Env, Cwd: &spec.Asked.Cwd,
		},
		Pid: uint32(p.PID()),
	}
	if spec.Tag != "" {
		info.Tag = &spec.Tag
	}
	if spec.User != nil {
		info.User = spec.User.Name
	}
	info.Terminal = spec.Terminal != nil
	info.OutputStart, info.OutputEnd = p.Output()
	exit, ended := p.Exit()
	info.Running = !ended
	if ended {
		code := int32(exit.Code)
		info.ExitCode, info.TimedOut, info.OomKilled = &code, exit.TimedOut, exit.OOMKilled
	}
	return info
}

func (s *processService) Start(ctx context.Context, req *processpb.StartRequest, stream *connect.ServerStream[processpb.StartResponse]) error {
	info, _ := connect.CallInfoForHandlerContext(ctx)
	spec, err := s.spec(ctx, info.RequestHeader(), req)
	if err != nil {
		return err
	}
	p, err := s.start(spec)
	if err != nil {
		return err
	}
	if req.Detach {
		return stream.Send(&processpb.StartResponse{Event: startEvent(p)})
	}
	r := p.Attach(0)
	if req.KillOnDisconnect {
		defer p.Kill() // does nothing once it has ended
	}
	defer r.Close()
	return follow(ctx, p, r, info.RequestHeader(), func(e *processpb.ProcessEvent) error {
		return stream.Send(&processpb.StartResponse{Event: e})
	})
}

// start starts a command. If an image has no bash, bash commands run in its sh.
func (s *processService) start(spec command.Spec) (*command.Process, error) {
	if isLine(spec.Argv) {
		if crowded := s.a.commands.Crowded(); crowded != nil {
			spec.Argv = withoutShell(spec.Argv)
			if spec.Argv == nil {
				return nil, crowded
			}
			p, err := s.a.commands.Start(spec)
			if bothy.ErrorCode(err) == bothy.CodeCommandNotFound {
				err = crowded // it is a word of the shell
			}
			return p, err
		}
	}
	p, err := s.a.commands.Start(spec)
	if bothy.ErrorCode(err) != bothy.CodeCommandNotFound || !isForBash(spec.Argv) {
		return p, err
	}
	for _, shell := range []string{"bash", "/bin/sh", "sh"} {
		spec.Argv = append([]string{shell}, spec.Argv[1:]...)
		p, err := s.a.commands.Start(spec)
		if bothy.ErrorCode(err) != bothy.CodeCommandNotFound {
			return p, err
		}
	}
	if spec.Argv = withoutShell(spec.Argv); spec.Argv != nil {
		p, err := s.a.commands.Start(spec)
		if bothy.ErrorCode(err) != bothy.CodeCommandNotFound {
			return p, err
		}
	}
	return nil, bothy.Errorf(bothy.CodeCommandNotFound, "the sandbox has no shell: neither bash nor sh was found").
		WithHint("Give the command as an array of arguments, whose first is the path of a program, or choose a template that has a shell.")
}

// plainLine matches a line that means the same without a shell.
var plainLine = regexp.MustCompile(`^ *[\w./+-]+( +[\w./+:=,@%-]+)* *$`)

// withoutShell returns the arguments of a shell's command line that means the same without the
// shell, or nil.
func withoutShell(argv []string) []string {
	if len(argv) == 4 && plainLine.MatchString(argv[3]) {
		return strings.Fields(argv[3])
	}
	return nil
}

// isForBash reports whether a command is a line for the shell, or the shell.
func isForBash(argv []string) bool {
	return isLine(argv) || len(argv) == 2 && argv[0] == "/bin/bash" && argv[1] == "-l"
}

// isLine reports whether a command is a line for the shell.
func isLine(argv []string) bool {
	return len(argv) == 4 && argv[0] == "/bin/bash" && argv[1] == "-l" && argv[2] == "-c"
}

// spec turns a request into a command.Spec.
func (s *processService) spec(ctx context.Context, h http.Header, req *processpb.StartRequest) (command.Spec, error) {
	r, err := s.a.request(h)
	if err != nil {
		return command.Spec{}, err
	}
	c := req.GetProcess()
	env, err := s.a.environment(r.user, c.GetEnvs(), req.Pty != nil)
	if err != nil {
		return command.Spec{}, err
	}
	spec := command.Spec{
		Argv: append([]string{c.GetCmd()}, c.GetArgs()...), Env: env, Dir: workdir(r, c.GetCwd()), User: r.user,
		Tag: req.GetTag(), Asked: command.Asked{Env: c.GetEnvs(), Cwd: c.GetCwd()},
		Stdin: req.Stdin == nil || *req.Stdin, Timeout: timeout(ctx, req), OutputLimit: int(req.OutputLimit),
		MergeStderr: req.MergeStderr,
	}
	if req.Input != nil {
		spec.Input, spec.Stdin = req.Input, true
	}
	if size := req.GetPty().GetSize(); req.Pty != nil {
		spec.Terminal = terminalSize(size)
	}
	return spec, nil
}

// timeout returns the limit of a command: its own time-out, or, as in envd, that of the call.
func timeout(ctx context.Context, req *processpb.StartRequest) time.Duration {
	if req.TimeoutMs != nil {
		return time.Duration(min(*req.TimeoutMs, 1<<40)) * time.Millisecond
	}
	if deadline, ok := ctx.Deadline(); ok {
		return max(time.Until(deadline), 1)
	}
	return 0
}

func workdir(r request, cwd string) string {
	if cwd == "" {
		return r.base
	}
	if filepath.IsAbs(cwd) {
		return cwd
	}
	return filepath.Join(r.base, cwd)
}

func terminalSize(s *processpb.PTY_Size) *command.Size {
	size := command.Size{Cols: 80, Rows: 24}
	if s.GetCols() > 0 && s.GetRows() > 0 {
		size.Cols, size.Rows = uint16(min(s.Cols, 1000)), uint16(min(s.Rows, 1000))
	}
	return &size
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment merges, with later ones taking precedence: every command's
// variables, the sandbox's, and the caller's.
func (a *Agent) environment(u *account.User, asked map[string]string, terminal bool) ([]string, error) {
	merged := map[string]string{
		"PATH": defaultPath, "HOME": u.Home, "USER": u.Name, "LOGNAME": u.Name, "SHELL": u.Shell, "LANG": "C.UTF-8",
	}
	if terminal {
		merged["TERM"] = "xterm-256color"
	}
	for _, layer := range [...]map[string]string{a.identity.get().env, asked} {
		for k, v := range layer {
			if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
				return nil, bothy.Errorf(bothy.CodeInvalid, "%q cannot be an environment variable", k).
					WithHint("Names may not be empty or hold \"=\", and neither names nor values NUL bytes.")
			}
			merged[k] = v
		}
	}
	env := make([]string, 0, len(merged)+1)
	for k, v := range merged {
		env = append(env, k+"="+v)
	}
	return env, nil
}

func (s *processService) Connect(ctx context.Context, req *processpb.ConnectRequest, stream *connect.ServerStream[processpb.ConnectResponse]) error {
	p, err := s.find(req.Process)
	if err != nil {
		return err
	}
	from := int64(-1)
	if req.FromOffset != nil {
		from = max(*req.FromOffset, 0)
	}
	info, _ := connect.CallInfoForHandlerContext(ctx)
	r := p.Attach(from)
	defer r.Close()
	return follow(ctx, p, r, info.RequestHeader(), func(e *processpb.ProcessEvent) error {
		return stream.Send(&processpb.ConnectResponse{Event: e})
	})
}

// follow sends a command's start, its output and its end.
func follow(ctx context.Context, p *command.Process, r *command.Reader, h http.Header, send func(*processpb.ProcessEvent) error) error {
	if err := send(startEvent(p)); err != nil {
		return err
	}
	tick, stop := keepAlive(h)
	defer stop()
	w := waiter{b: batchOf(ctx), tick: tick, prompt: p.Spec().Terminal != nil}
	for {
		c, err := w.next(ctx, r)
		switch {
		case err == nil:
			err = send(dataEvent(c))
		case err == command.ErrTick:
			err = send(&processpb.ProcessEvent{Event: &processpb.ProcessEvent_Keepalive{Keepalive: &processpb.ProcessEvent_KeepAlive{}}})
		case err == io.EOF:
			return send(endEvent(p, r))
		}
		if err != nil {
			return err
		}
	}
}

// waiter waits for output, and flushes what was sent before unless more follows soon.
type waiter struct {
	b      *batch
	tick   <-chan time.Time
	prompt bool // a person waits: flush at once
	soon   *time.Timer
}

func (w *waiter) next(ctx context.Context, r *command.Reader) (command.Chunk, error) {
	if w.prompt {
		w.b.flush()
	}
	if w.b.waiting {
		if w.soon == nil {
			w.soon = time.NewTimer(startDelay)
		} else {
			w.soon.Reset(batchDelay)
		}
		c, err := r.Next(ctx, w.soon.C)
		w.soon.Stop()
		if err != command.ErrTick {
			return c, err
		}
		w.b.flush()
	}
	return r.Next(ctx, w.tick)
}

// keepAlive returns the ticks at which a quiet stream shows that it is alive.
func keepAlive(h http.Header) (tick <-chan time.Time, stop func()) {
	interval := keepAliveInterval(h)
	if interval == 0 {
		return nil, func() {}
	}
	t := time.NewTicker(interval)
	return t.C, t.Stop
}

func startEvent(p *command.Process) *processpb.ProcessEvent {
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Start{
		Start: &processpb.ProcessEvent_StartEvent{Pid: uint32(p.PID())},
	}}
}

func dataEvent(c command.Chunk) *processpb.ProcessEvent {
	d := &processpb.ProcessEvent_DataEvent{Offset: c.Offset}
	switch c.Stream {
	case command.Stdout:
		d.Output = &processpb.ProcessEvent_DataEvent_Stdout{Stdout: c.Data}
	case command.Stderr:
		d.Output = &processpb.ProcessEvent_DataEvent_Stderr{Stderr: c.Data}
	case command.Terminal:
		d.Output = &processpb.ProcessEvent_DataEvent_Pty{Pty: c.Data}
	}
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Data{Data: d}}
}

func endEvent(p *command.Process, r *command.Reader) *processpb.ProcessEvent {
	exit, ended := p.Exit()
	_, end := p.Output()
	e := &processpb.ProcessEvent_EndEvent{
		ExitCode: int32(exit.Code), Exited: ended && exit.Signal == 0, Status: fmt.Sprintf("exit status %d", exit.Code),
		TimedOut: exit.TimedOut, OomKilled: exit.OOMKilled, Truncated: r.Truncated(), Signal: int32(exit.Signal),
		DurationMs: exit.Duration.Milliseconds(), Hint: exit.Hint, OutputEnd: end,
	}
	if exit.Signal != 0 {
		e.Status = "signal: " + exit.Signal.String()
	}
	if exit.Code != 0 {
		e.Error = &e.Status
	}
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_End{End: e}}
}

func (s *processService) find(sel *processpb.ProcessSelector) (*command.Process, error) {
	switch x := sel.GetSelector().(type) {
	case *processpb.ProcessSelector_Pid:
		if p := s.a.commands.Find(int(x.Pid)); p != nil {
			return p, nil
		}
		return nil, bothy.Errorf(bothy.CodeProcessNotFound, "there is no process %d that was started through the API", x.Pid).
			WithHint("List the processes to see those that there are; the oldest that ended are forgotten.")
	case *processpb.ProcessSelector_Tag:
		if p := s.a.commands.FindTag(x.Tag); p != nil {
			return p, nil
		}
		return nil, bothy.Errorf(bothy.CodeProcessNotFound, "there is no process with the tag %q", x.Tag)
	}
	return nil, bothy.Errorf(bothy.CodeInvalid, "the request names no process").WithHint("Give its pid or its tag.")
}

func (s *processService) Update(ctx context.Context, req *processpb.UpdateRequest) (*processpb.UpdateResponse, error) {
	p, err := s.find(req.Process)
	if err == nil && req.Pty != nil {
		err = p.Resize(*terminalSize(req.Pty.Size))
	}
	return &processpb.UpdateResponse{}, err
}

func (s *processService) SendInput(ctx context.Context, req *processpb.SendInputRequest) (*processpb.SendInputResponse, error) {
	p, err := s.find(req.Process)
	if err == nil {
		err = p.Write(ctx, inputBytes(req.Input))
	}
	return &processpb.SendInputResponse{}, err
}

func inputBytes(in *processpb.ProcessInput) []byte {
	if b := in.GetPty(); b != nil {
		return b
	}
	return in.GetStdin()
}

func (s *processService) StreamInput(ctx context.Context, stream *connect.ClientStream[processpb.StreamInputRequest]) (*processpb.StreamInputResponse, error) {
	var p *command.Process
	for stream.Receive() {
		var err error
		switch x := stream.Msg().Event.(type) {
		case *processpb.StreamInputRequest_Start:
			p, err = s.find(x.Start.GetProcess())
		case *processpb.StreamInputRequest_Data:
			if p == nil {
				return nil, bothy.Errorf(bothy.CodeInvalid, "the input does not begin by naming its process")
			}
			err = p.Write(ctx, inputBytes(x.Data.GetInput()))
		}
		if err != nil {
			return nil, err
		}
	}
	return &processpb.StreamInputResponse{}, stream.Err()
}

func (s *processService) SendSignal(ctx context.Context, req *processpb.SendSignalRequest) (*processpb.SendSignalResponse, error) {
	number := req.Number
	if number == 0 {
		number = int32(req.Signal)
	}
	p, err := s.find(req.Process)
	if err == nil {
		return &processpb.SendSignalResponse{}, p.Signal(syscall.Signal(number))
	}
	if x, ok := req.Process.GetSelector().(*processpb.ProcessSelector_Pid); ok {
		err = s.a.commands.SignalOther(int(x.Pid), syscall.Signal(number))
	}
	return &processpb.SendSignalResponse{}, err
}

func (s *processService) CloseStdin(ctx context.Context, req *processpb.CloseStdinRequest) (*processpb.CloseStdinResponse, error) {
	p, err := s.find(req.Process)
	if err != nil {
		return nil, err
	}
	if p.Spec().Terminal != nil {
		return nil, bothy.Errorf(bothy.CodeConflict, "process %d has a terminal, whose input has no end", p.PID()).
			WithHint("Write the byte 4 (Ctrl-D) instead.")
	}
	p.CloseInput()
	return &processpb.CloseStdinResponse{}, nil
}
