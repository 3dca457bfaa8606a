//go:build linux && !clientonly

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/server"
)

// startTimeout bounds the time until the server answers. It may have to adopt many sandboxes
// first.
const startTimeout = 60 * time.Second

func logPath() string { return filepath.Join(home(), "server.log") }

// adminPath is where the server writes the key that it creates at its first start.
func adminPath() string { return filepath.Join(home(), server.AdminFile) }

// startServer starts `bothy serve` in a new session, and waits until it
// answers.
func (a *app) startServer(ctx context.Context, listen string, args []string) (*serverFile, error) {
	if err := os.MkdirAll(home(), 0o711); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(logPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	written, err := log.Seek(0, 2)
	if err != nil {
		return nil, err
	}
	cmd := serveCommand(listen, args)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the server: %w", err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	server, err := describeServer(cmd.Process.Pid, listen)
	if err != nil && hasEnded(ended) {
		err = errServerEnded
	}
	if err == nil {
		server.Credentials = adminPath()
		err = server.saveTo(serverFilePath())
	}
	if err == nil {
		err = a.waitHealthy(ctx, server, ended)
	}
	if err != nil {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		a.printLog(written)
		return nil, err
	}
	return server, nil
}

func serveCommand(listen string, args []string) *exec.Cmd {
	words := append([]string{"serve", "--listen", listen, "--bootstrap-credentials", adminPath()}, args...)
	cmd := exec.Command("/proc/self/exe", words...)
	cmd.Args[0] = "bothy"
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// hasEnded reports whether a process that may have ended has.
func hasEnded(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	case <-time.After(time.Second):
		return false
	}
}

var errServerEnded = errors.New("the server ended immediately; its last lines are above")

// waitHealthy polls until the server answers. ended, if not nil, is closed when the server has
// ended.
func (a *app) waitHealthy(ctx context.Context, server *serverFile, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !doctor.Healthy(ctx, dialAddress(server.Listen)) {
		select {
		case <-ended:
			return errServerEnded
		case <-ctx.Done():
			return fmt.Errorf("the server (pid %d) does not answer at %s; its log is %s", server.PID, server.url(), logPath())
		case <-tick.C:
		}
	}
	return nil
}

// printLog shows the last lines that the server has logged since its start.
func (a *app) printLog(from int64) {
	const lines = 15
	b, err := os.ReadFile(logPath())
	if err != nil || int64(len(b)) < from {
		return
	}
	all := bytes.SplitAfter(b[from:], []byte("\n"))
	for _, line := range all[max(0, len(all)-lines):] {
		_, _ = a.stderr.Write(line)
	}
}

// install installs packages, showing the package manager's output.
func (a *app) install(ctx context.Context, packages []string) error {
	return a.hostCommand(ctx, doctor.InstallCommand(packages))
}

// hostCommand runs a command line, and shows it and its output.
func (a *app) hostCommand(ctx context.Context, line string) error {
	fmt.Fprintln(a.stderr, line)
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = a.stderr, a.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	return nil
}
