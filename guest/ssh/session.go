package ssh

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

const (
	// maxEnv limits the size of the variables that a client sends.
	maxEnv = 64 << 10
	// linger is how long the output of a terminal is awaited after its process has ended: what
	// was left running in the background may hold it open.
	linger = 100 * time.Millisecond
)

// session is one shell, command or subsystem.
type session struct {
	cfg     Config
	ch      ssh.Channel
	env     []string
	envSize int
	// window is set if the client asked for a terminal.
	window *window

	started bool
	// answered is closed when the client knows that the session has started. It must not see the
	// end, or output, before.
	answered chan struct{}
	process  *os.Process
	terminal *os.File   // the master side
	files    []*os.File // our ends of pipes
	exited   chan struct{}
}

// window is a terminal's size, as in the requests of the protocol.
type window struct{ Cols, Rows, Width, Height uint32 }

func (w window) size() *pty.Winsize {
	clip := func(n uint32) uint16 { return uint16(min(n, 1<<16-1)) }
	return &pty.Winsize{Cols: clip(w.Cols), Rows: clip(w.Rows), X: clip(w.Width), Y: clip(w.Height)}
}

func newSession(cfg Config, ch ssh.Channel) *session {
	return &session{cfg: cfg, ch: ch, env: slices.Clip(cfg.Env), answered: make(chan struct{}), exited: make(chan struct{})}
}

// serve answers the session's requests until its channel is closed. A process that still runs
// then is left running: without a terminal, as with any SSH server, it notices only when it
// writes.
func (s *session) serve(requests <-chan *ssh.Request) {
	for r := range requests {
		before := s.started
		_ = r.Reply(s.request(r), nil)
		if s.started && !before {
			close(s.answered)
		}
	}
	if s.terminal != nil {
		s.terminal.Close() // hangs up
	}
	for _, f := range s.files {
		f.Close()
	}
}

func (s *session) request(r *ssh.Request) bool {
	switch r.Type {
	case "env":
		var v struct{ Name, Value string }
		if s.started || ssh.Unmarshal(r.Payload, &v) != nil || v.Name == "" || strings.ContainsAny(v.Name+v.Value, "\x00") || strings.Contains(v.Name, "=") {
			return false
		}
		if s.envSize += len(v.Name) + len(v.Value) + 2; s.envSize > maxEnv {
			return false
		}
		s.env = append(s.env, v.Name+"="+v.Value)
		return true
	case "pty-req":
		var v struct {
			Term                      string
			Cols, Rows, Width, Height uint32
			Modes                     string
		}
		if s.started || ssh.Unmarshal(r.Payload, &v) != nil || strings.ContainsRune(v.Term, 0) {
			return false
		}
		s.window = &window{v.Cols, v.Rows, v.Width, v.Height}
		s.env = append(s.env, "TERM="+v.Term)
		return true
	case "window-change":
		var w window
		if s.terminal == nil || ssh.Unmarshal(r.Payload, &w) != nil {
			return false
		}
		return pty.Setsize(s.terminal, w.size()) == nil
	case "signal":
		var v struct{ Name string }
		if s.process == nil || ssh.Unmarshal(r.Payload, &v) != nil {
			return false
		}
		sig, ok := signals[v.Name]
		return ok && s.signal(sig)
	case "shell":
		return s.start("", true)
	case "exec":
		var v struct{ Line string }
		return ssh.Unmarshal(r.Payload, &v) == nil && s.start(v.Line, false)
	case "subsystem":
		var v struct{ Name string }
		return ssh.Unmarshal(r.Payload, &v) == nil && v.Name == "sftp" && s.startSFTP()
	}
	return false // agent and X11 forwarding are refused, too
}

// signal sends a signal to the process's group, unless it has been waited for: its id may be
// another's by then.
func (s *session) signal(sig syscall.Signal) bool {
	select {
	case <-s.exited:
		return false
	default:
		return syscall.Kill(-s.process.Pid, sig) == nil
	}
}

func (s *session) startSFTP() bool {
	if s.started {
		return false
	}
	s.started = true
	server, err := sftp.NewServer(s.ch, sftp.WithServerWorkingDirectory(s.cfg.Home))
	if err != nil {
		return false
	}
	go func() {
		code := uint32(0)
		if server.Serve() != nil { // it has closed the files
			code = 1
		}
		s.finish("exit-status", ssh.Marshal(struct{ Code uint32 }{code}))
	}()
	return true
}

// start starts the shell, with a command line or as a login shell.
func (s *session) start(line string, login bool) bool {
	if s.started {
		return false
	}
	s.started = true
	cmd := &exec.Cmd{Path: s.cfg.Shell, Args: []string{s.cfg.Shell, "-c", line}, Dir: s.cfg.Home, Env: s.env}
	if login {
		cmd.Args = []string{"-" + filepath.Base(s.cfg.Shell)}
	}
	if _, err := os.Stat(cmd.Dir); err != nil {
		cmd.Dir = "/"
	}
	var err error
	if s.window != nil {
		err = s.startOnTerminal(cmd)
	} else {
		err = s.startOnPipes(cmd)
	}
	if err != nil {
		_, _ = io.WriteString(s.ch.Stderr(), "bothy: cannot start "+s.cfg.Shell+": "+err.Error()+"\r\n")
		go s.finish("exit-status", ssh.Marshal(struct{ Code uint32 }{126}))
		return true
	}
	s.process = cmd.Process
	return true
}

func (s *session) startOnTerminal(cmd *exec.Cmd) error {
	master, slave, err := pty.Open()
	if err != nil {
		return err
	}
	defer slave.Close()
	_ = pty.Setsize(master, s.window.size())
	cmd.Env = append(cmd.Env, "SSH_TTY="+slave.Name())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		master.Close()
		return err
	}
	s.terminal = master
	go func() { _, _ = io.Copy(master, s.ch) }()
	output := make(chan struct{})
	go func() {
		defer close(output)
		s.copyTerminal(master)
	}()
	go func() {
		_ = cmd.Wait()
		close(s.exited)
		_ = master.SetReadDeadline(time.Now().Add(linger))
		<-output
		s.finish(exitOf(cmd.ProcessState))
	}()
	return nil
}

// copyTerminal returns when the terminal has no more output, or none for a while after the
// process has ended.
func (s *session) copyTerminal(master *os.File) {
	<-s.answered
	buf := make([]byte, 32<<10)
	for {
		n, err := master.Read(buf)
		if n > 0 {
			if _, err := s.ch.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return // a terminal without processes ends with EIO
		}
		select {
		case <-s.exited:
			_ = master.SetReadDeadline(time.Now().Add(linger))
		default:
		}
	}
}

func (s *session) startOnPipes(cmd *exec.Cmd) error {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	var ours [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if i == 0 {
			r, w = w, r // the process reads its input
		}
		ours[i], theirs = r, append(theirs, w)
		s.files = append(s.files, r)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(ours[0], s.ch)
		ours[0].Close()
	}()
	output := make(chan struct{}, 2)
	for i, to := range []io.Writer{s.ch, s.ch.Stderr()} {
		go func() {
			<-s.answered
			_, _ = io.Copy(to, ours[1+i])
			output <- struct{}{}
		}()
	}
	go func() {
		_ = cmd.Wait()
		close(s.exited)
		// As with any SSH server, the session lasts until all that hold its output have ended:
		// closing it would kill them at their next line.
		<-output
		<-output
		s.finish(exitOf(cmd.ProcessState))
	}()
	return nil
}

// finish tells the client how the session ended.
func (s *session) finish(kind string, payload []byte) {
	<-s.answered
	_ = s.ch.CloseWrite()
	_, _ = s.ch.SendRequest(kind, false, payload)
	s.ch.Close()
}

// exitOf is the request that says how a process ended.
func exitOf(state *os.ProcessState) (kind string, payload []byte) {
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return "exit-signal", ssh.Marshal(struct {
			Name          string
			Core          bool
			Message, Lang string
		}{signalName(status.Signal()), status.CoreDump(), "", ""})
	}
	return "exit-status", ssh.Marshal(struct{ Code uint32 }{uint32(state.ExitCode())})
}

// signals are those that the protocol names.
var signals = map[string]syscall.Signal{
	"ABRT": syscall.SIGABRT, "ALRM": syscall.SIGALRM, "FPE": syscall.SIGFPE, "HUP": syscall.SIGHUP, "ILL": syscall.SIGILL,
	"INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "PIPE": syscall.SIGPIPE, "QUIT": syscall.SIGQUIT, "SEGV": syscall.SIGSEGV,
	"TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
}

func signalName(sig syscall.Signal) string {
	for name, s := range signals {
		if s == sig {
			return name
		}
	}
	return "SIG@openssh.com"
}
