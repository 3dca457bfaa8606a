// Package lab starts what is measured: a Bothy server, a Docker daemon of its own, gVisor's
// runsc, and a network between them. It needs root. Only programs that measure use it.
//
// Everything happens in network and mount namespaces of the program's own: the
// host's network is left as it is, and mounts end with the program.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/internal/cleanup"
)

// insideEnv marks the process that is in the namespaces.
const insideEnv = "BOTHY_BENCH_LAB"

// Enter runs the program again in namespaces of its own and ends with its exit
// code. Inside it returns, with the network's loopback up.
func Enter() error {
	if !Inside() {
		return again()
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Inside reports whether this process is in the lab's namespaces.
func Inside() bool { return os.Getenv(insideEnv) != "" }

func again() error {
	if os.Geteuid() != 0 {
		return errors.New("the lab makes namespaces and cgroups: run it as root")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	var exit *exec.ExitError
	switch err := cmd.Wait(); {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit):
		os.Exit(max(1, exit.ExitCode()))
	default:
		return err
	}
	return nil
}

// Options say what the lab consists of.
type Options struct {
	// Bothy is the program to measure, Templates the folder of its templates, and Template the
	// one to measure with.
	Bothy, Templates, Template string
	// Engine is the default engine of its servers; empty means theirs. Kernels is the folder of
	// the kernels of virtual machines.
	Engine, Kernels string
	// Runsc is the path of gVisor's own command, if it is one of the rivals.
	Runsc string
	// Bare is a build of the program without keys, plans, meters and the audit, if that is
	// measured.
	Bare string
	// Payload is how to run this program as the payload of the network's cases: the arguments
	// after its name.
	Payload []string
}

// Lab holds what was started. Close ends it all.
type Lab struct {
	Options
	// Dir is the folder of everything, including the logs of what was started.
	Dir  string
	undo cleanup.Stack
	// trees are folders with the files of templates, once mounted.
	trees map[string]string
	// servers counts those that were started.
	servers int
}

// Missing means that something to measure does not exist.
type Missing struct{ What, Why string }

func (m *Missing) Error() string { return m.What + " is missing: " + m.Why }

// New makes a lab's folder. It is not in a memory file system, and accessible to nobody, as whom
// sandboxes run.
func New(o Options) (*Lab, error) {
	dir, err := os.MkdirTemp("/var/tmp", "bothy-bench-")
	if err != nil {
		return nil, err
	}
	l := &Lab{Options: o, Dir: dir, trees: map[string]string{}}
	l.undo.Add(func() { unmountBelow(dir); os.RemoveAll(dir) })
	return l, os.Chmod(dir, 0o711)
}

// Later makes something end with the lab, after what is started from now on.
func (l *Lab) Later(end func()) { l.undo.Add(end) }

// Close ends everything, last first.
func (l *Lab) Close() { l.undo.Run() }

// stopPatience is how long a program may take to end when asked.
const stopPatience = 20 * time.Second

// start runs a program until the lab is closed. Its output goes to NAME.log.
func (l *Lab) start(name string, cmd *exec.Cmd) error {
	log, err := os.OpenFile(l.log(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	l.undo.Add(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(stopPatience):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	})
	return nil
}

func (l *Lab) log(name string) string { return filepath.Join(l.Dir, name+".log") }

// logTail is the end of a program's output, for errors.
func (l *Lab) logTail(name string) string {
	b, _ := os.ReadFile(l.log(name))
	return string(b[max(0, len(b)-2000):])
}

// await retries until it works, or the context ends.
func await(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last: %w)", what, ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Tree returns a folder with the files of the template.
func (l *Lab) Tree() (string, error) { return l.TreeOf(l.Template) }

// TreeOf returns a folder with the files of a template.
func (l *Lab) TreeOf(name string) (string, error) {
	if dir := l.trees[name]; dir != "" {
		return dir, nil
	}
	image, err := l.imageOf(name)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(l.Dir, "tree-"+name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if err := run("mount", "-t", "erofs", "-o", "ro", image, dir); err != nil {
		return "", err
	}
	l.undo.Add(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	l.trees[name] = dir
	return dir, nil
}

// run runs a command to its end; an error contains its output.
func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

// KeepLog copies a program's output to a file that outlives the lab.
func (l *Lab) KeepLog(name, path string) error {
	b, err := os.ReadFile(l.log(name))
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
