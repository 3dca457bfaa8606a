package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy/bench"
)

// Container is one of runsc's, which runs the program of bench.HoldArgs.
type Container struct {
	r      *Runsc
	id     string
	bundle string
	images string // folder of its checkpoints
	count  int
	out    *bufio.Reader
}

// Hold runs a container that holds so many megabytes, until the lab is closed.
func (l *Lab) Hold(ctx context.Context, r *Runsc, mb int) (*Container, error) {
	dir, err := os.MkdirTemp(l.Dir, "hold-")
	if err != nil {
		return nil, err
	}
	c := &Container{r: r, id: r.newID(), bundle: filepath.Join(dir, "bundle"), images: dir}
	tree, err := l.Tree()
	if err != nil {
		return nil, err
	}
	if err := writeBundle(c.bundle, tree, bench.HoldArgs(mb)); err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := r.command("run", "--detach", "--bundle="+c.bundle, c.id)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("runsc run: %w: %s", err, l.readAll(out.Name()))
	}
	in, err := os.Open(out.Name())
	if err != nil {
		return nil, err
	}
	l.undo.Add(func() { in.Close() })
	c.out = bufio.NewReader(in)
	return c, bench.Expect(ctx, c, "ready")
}

func (l *Lab) readAll(path string) []byte {
	b, _ := os.ReadFile(path)
	return b
}

// Exec is a subject: runsc exec in the container.
func (c *Container) Exec() bench.Subject {
	return bench.Subject{Name: "runsc", Once: func(_ context.Context, record bench.Record) error {
		begun := time.Now()
		err := c.r.run("exec", c.id, "/bin/true")
		record("exec", bench.Since(begun))
		return err
	}}
}

// Drop ends the container.
func (c *Container) Drop() { _ = c.drop(c.id) }

func (r *Runsc) newID() string {
	return fmt.Sprintf("bench-%d-%d", os.Getpid(), r.runs.Add(1))
}

func (r *Runsc) command(args ...string) *exec.Cmd {
	return exec.Command(r.binary, append([]string{"--root=" + r.root, "--network=none", "--platform=systrap", "--overlay2=root:memory"}, args...)...)
}

func (r *Runsc) run(args ...string) error {
	// A container that keeps running must not hold a pipe of ours.
	err := r.command(args...).Run()
	if err != nil {
		return fmt.Errorf("runsc %s: %w", args[0], err)
	}
	return nil
}

// deleteAll ends every remaining container. What the command cannot end is killed: a sandbox
// outlives it.
func (r *Runsc) deleteAll() {
	list, _ := r.command("list", "--quiet").Output()
	for _, id := range strings.Fields(string(list)) {
		_ = r.delete(id)
	}
	own := []byte("--root=" + r.root + "\x00")
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		b, _ := os.ReadFile(path)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && bytes.Contains(b, own) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (r *Runsc) delete(id string) error { return r.run("delete", "--force", id) }

// Signal sends the program a signal.
func (c *Container) Signal(_ context.Context, s syscall.Signal) error {
	return c.r.run("kill", c.id, fmt.Sprint(int(s)))
}

// Line waits for the program's next line.
func (c *Container) Line(ctx context.Context) (string, error) {
	var line string
	for ctx.Err() == nil {
		part, err := c.out.ReadString('\n')
		line += part
		if err == nil {
			return strings.TrimSuffix(line, "\n"), nil
		}
		if !errors.Is(err, io.EOF) {
			return "", err
		}
		time.Sleep(time.Millisecond)
	}
	return "", ctx.Err()
}

// checkpoint writes the container's memory into a new folder. The container keeps running.
func (c *Container) checkpoint() (string, error) {
	c.count++
	image := filepath.Join(c.images, fmt.Sprint(c.count))
	if err := os.Mkdir(image, 0o700); err != nil {
		return "", err
	}
	return image, c.r.run("checkpoint", "--leave-running", "--compression=none", "--image-path="+image, c.id)
}

// restore starts copies from a checkpoint, waits until a command has answered in each, and
// returns their ids.
func (c *Container) restore(image string, copies int) ([]string, error) {
	ids, errs := make([]string, copies), make([]error, copies)
	for i := range ids {
		ids[i] = c.r.newID()
	}
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			errs[i] = c.r.run("restore", "--detach", "--bundle="+c.bundle, "--image-path="+image, id)
			if errs[i] == nil {
				errs[i] = c.r.run("exec", id, "/bin/true")
			}
		})
	}
	all.Wait()
	return ids, errors.Join(errs...)
}

func (c *Container) drop(ids ...string) (err error) {
	for _, id := range ids {
		err = errors.Join(err, c.r.delete(id))
	}
	return err
}

// Restore is a subject: runsc restore until a command has answered.
func (c *Container) Restore() (bench.Subject, error) {
	image, err := c.checkpoint()
	return bench.Subject{Name: "runsc", Once: func(_ context.Context, record bench.Record) error {
		begun := time.Now()
		ids, err := c.restore(image, 1)
		record(bench.Resume, bench.Since(begun))
		return errors.Join(err, c.drop(ids...))
	}}, err
}

// Checkpoint is a subject: how long runsc checkpoint freezes the program.
func (c *Container) Checkpoint() bench.Subject {
	return bench.Subject{Name: "runsc", Once: func(ctx context.Context, record bench.Record) error {
		var took time.Duration
		gap, err := bench.Gap(ctx, c, func() error {
			begun := time.Now()
			image, err := c.checkpoint()
			took = time.Since(begun)
			return errors.Join(err, os.RemoveAll(image))
		})
		if err != nil {
			return err
		}
		record(bench.LiveSnapshotFreeze, gap)
		record(bench.LiveSnapshot, float64(took.Microseconds())/1000)
		gap, err = bench.Gap(ctx, c, func() error { time.Sleep(took); return nil })
		record(bench.QuietGap, gap)
		return err
	}}
}

// Fork is a subject: a checkpoint and n containers restored from it at once, until a command has
// answered in each.
func (c *Container) Fork(n int) bench.Subject {
	return bench.Subject{Name: "runsc", Once: func(_ context.Context, record bench.Record) error {
		begun := time.Now()
		image, err := c.checkpoint()
		if err != nil {
			return err
		}
		ids, err := c.restore(image, n)
		record(bench.ForkOf(n), bench.Since(begun))
		return errors.Join(err, c.drop(ids...), os.RemoveAll(image))
	}}
}

// Rollback is a subject: a checkpoint of the current state, the container's end, and a restore
// of an earlier one, until a command has answered.
func (c *Container) Rollback() (bench.Subject, error) {
	earlier, err := c.checkpoint()
	if err != nil {
		return bench.Subject{}, err
	}
	now, err := c.restore(earlier, 1)
	return bench.Subject{Name: "runsc", Once: func(_ context.Context, record bench.Record) error {
		was := Container{r: c.r, id: now[0], bundle: c.bundle, images: c.images, count: c.count}
		c.count++
		begun := time.Now()
		image, err := was.checkpoint()
		if err != nil {
			return err
		}
		if err := was.drop(was.id); err != nil {
			return err
		}
		if now, err = c.restore(earlier, 1); err != nil {
			return err
		}
		record(bench.Rollback, bench.Since(begun))
		return os.RemoveAll(image)
	}}, err
}
