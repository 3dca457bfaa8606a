package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Work is what a worker may use.
type Work struct {
	Template       string
	CPUs, MemoryMB int
}

// A Worker runs commands in a container, or on the host. It is a place of package work.
type Worker struct {
	prefix []string // before each command
	root   string   // of the host's worker
	cpus   int
}

// Worker starts a container that idles, with the files of a template. Runtime is
// Docker's own if empty, or GVisorRuntime.
func (d *Docker) Worker(ctx context.Context, l *Lab, w Work, runtime string) (*Worker, error) {
	if runtime == GVisorRuntime && l.Options.Runsc == "" {
		return nil, &Missing{"runsc", "there is no such program in the PATH"}
	}
	image := "bothy-bench-" + w.Template
	if err := d.imageOf(ctx, l, w.Template, image); err != nil {
		return nil, err
	}
	args := []string{"run", "-d", "--network=none", fmt.Sprint("--cpus=", w.CPUs), fmt.Sprint("--memory=", w.MemoryMB, "m")}
	if runtime != "" {
		args = append(args, "--runtime="+runtime)
	}
	id, err := d.Output(append(args, image, "/bin/sleep", "infinity")...)
	if err != nil {
		return nil, err
	}
	return &Worker{prefix: []string{d.cli, "-H", "unix://" + d.socket, "exec", "-i", id}}, nil
}

// HostWorker runs commands on the host's own kernel, on the files of a template.
func (l *Lab) HostWorker(w Work) (*Worker, error) {
	tree, err := l.TreeOf(w.Template)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(l.Dir, "host-")
	if err != nil {
		return nil, err
	}
	root, upper, scratch := filepath.Join(dir, "root"), filepath.Join(dir, "upper"), filepath.Join(dir, "scratch")
	for _, d := range []string{root, upper, scratch} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, err
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", tree, upper, scratch)); err != nil {
		return nil, fmt.Errorf("mount the files of %s for the host: %w", w.Template, err)
	}
	mounted := []error{
		unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""),
		unix.Mount("/dev", filepath.Join(root, "dev"), "", unix.MS_BIND|unix.MS_REC, ""),
	}
	l.undo.Add(func() { unmountBelow(dir) })
	return &Worker{root: root, cpus: w.CPUs}, errors.Join(mounted...)
}

// Run runs a command as root to its end, and returns its output.
func (w *Worker) Run(ctx context.Context, args ...string) (string, error) {
	return w.run(ctx, nil, args)
}

// Unpack unpacks a tar archive into an existing folder.
func (w *Worker) Unpack(ctx context.Context, folder string, archive io.Reader) error {
	_, err := w.run(ctx, archive, []string{"tar", "-x", "--no-same-owner", "-C", folder})
	return err
}

func (w *Worker) run(ctx context.Context, in io.Reader, args []string) (string, error) {
	all := append(w.prefix[:len(w.prefix):len(w.prefix)], args...)
	if w.root != "" {
		all = append([]string{"/usr/bin/env"}, all...)
	}
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Stdin = in
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	start := cmd.Start
	if w.root != "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: w.root}
		cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
		start = func() error { return onFew(w.cpus, cmd.Start) }
	}
	if err := start(); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, said.Bytes()[max(0, said.Len()-2000):])
	}
	return out.String(), nil
}

// onFew starts a process that may use only so many of the host's processors.
func onFew(n int, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, few unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := 0; few.Count() < min(n, all.Count()); cpu++ {
		if all.IsSet(cpu) {
			few.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &few); err != nil {
		return err
	}
	return errors.Join(start(), unix.SchedSetaffinity(0, &all))
}
