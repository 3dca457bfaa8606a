package pretend

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/creack/pty"

	"github.com/bothy-dev/bothy"
)

// terminal is a PTY of this host.
type terminal struct {
	*os.File
	cmd *exec.Cmd
}

// Terminal opens a shell, or a command, on a PTY.
func (w Exec) Terminal(_ context.Context, id string, req bothy.TerminalRequest) (bothy.Terminal, error) {
	s, err := w.find(id)
	if err != nil {
		return nil, err
	}
	argv := []string{"/bin/bash", "--norc", "-i"}
	if req.Command.Line != "" || req.Command.Args != nil {
		argv = req.Command.Argv()
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = filepath.Join(s.root, bothy.DefaultCwd)
	cmd.Env = append(os.Environ(), "PS1=sandbox$ ", "TERM="+req.Env["TERM"])
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: uint16(req.Cols), Rows: uint16(req.Rows)})
	if err != nil {
		return nil, err
	}
	return &terminal{File: f, cmd: cmd}, nil
}

func (t *terminal) Resize(cols, rows int) error {
	return pty.Setsize(t.File, &pty.Winsize{Cols: uint16(cols), Rows: uint16(rows)})
}

// Close hangs up, which also ends a Read that waits.
func (t *terminal) Close() error {
	_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL)
	return t.File.Close()
}

func (t *terminal) PID() int { return t.cmd.Process.Pid }

func (t *terminal) Wait() (int, error) {
	err := t.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}
