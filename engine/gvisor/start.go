package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine"
	"github.com/bothy-dev/bothy/engine/gvisor/driver"
	"github.com/bothy-dev/bothy/engine/process"
)

// Start boots a machine from a template.
func (e *Engine) Start(ctx context.Context, spec bothy.MachineSpec) (bothy.Machine, error) {
	m, err := e.launch(ctx, spec, func(p *preparedSentry) error {
		return p.do(ctx, driver.Op{Name: driver.OpStart, Container: p.sb.name}, p.packets)
	})
	if err != nil && spec.FilesTar != "" && strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return nil, bothy.Errorf(bothy.CodeDiskFull, "the files of the snapshot do not fit a sandbox with %d MB of disk and %d MB of memory, which can have %d files, folders and links",
			spec.Limits.DiskMB, spec.Limits.MemoryMB, driver.Inodes(spec.Limits)).
			WithHint("Create it with more disk_mb, or with more memory_mb where there are many small files.").Because(err)
	}
	if err != nil {
		return nil, engine.StartError("gVisor", "engine.start", err)
	}
	return m, nil
}

// launch takes or makes everything a sentry needs and calls begin, which boots
// or restores it. On failure nothing is left.
func (e *Engine) launch(ctx context.Context, spec bothy.MachineSpec, begin func(*preparedSentry) error) (_ *Machine, err error) {
	if err := e.take(spec.ID, spec.AllowConcurrent); err != nil {
		return nil, err
	}
	undo := cleanup.Make(func() { e.releaseID(spec.ID) })
	defer undo.Clean()
	kept, err := e.holdBuild(spec.Build)
	if err != nil {
		return nil, err
	}
	undo.Add(kept.Release)
	spec, sentry, err := e.ofBuild(spec, kept)
	if err != nil {
		return nil, err
	}
	var p *preparedSentry
	if kept == nil {
		p = e.takeSpare(spec.Kind())
	}
	if p == nil {
		name := spec.ID
		if spec.AllowConcurrent {
			name = spareName()
		}
		if p, err = e.prepareSentry(name, spec, sentry); err != nil {
			return nil, err
		}
	}
	undo.Add(p.destroy)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// The library waits for the sentry's answer without a time limit, and with a damaged
	// checkpoint that can be for ever.
	waiting := context.AfterFunc(ctx, func() { process.End(p.sb.pid) })
	err = begin(p)
	if !waiting() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, bothy.Errorf(bothy.CodeEngine, "the sandbox's kernel did not start in time").
				WithHint("The host may have too much to do: try again, or with fewer at once.").Because(err)
		}
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		if tail := panicOutput(p.dir); tail != "" {
			err = fmt.Errorf("%w (sentry: %s)", err, tail)
		}
		return nil, err
	}
	m, err := e.newMachine(spec, p.uid, kept, p.sb, p.group, p.dir)
	if err != nil {
		return nil, err
	}
	p.packets.Close()
	m.tap, m.notify = p.tap, p.notify
	undo.Release()
	return m, nil
}

// take reserves an id, which another machine may have only if concurrent allows it.
func (e *Engine) take(id string, concurrent bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taken[id] > 0 && !concurrent {
		return engine.Conflict(id)
	}
	e.taken[id]++
	return nil
}

func (e *Engine) releaseID(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taken[id]--; e.taken[id] == 0 {
		delete(e.taken, id)
	}
}

// openImages opens the root image, the guest image and the file behind the
// overlay, which has no name and so cannot be left over.
func openImages(spec bothy.MachineSpec, dir string) (_ []*os.File, err error) {
	var files []*os.File
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
		}
	}()
	for _, path := range []string{spec.RootFS, spec.Guest} {
		f, err := engine.OpenImage(path)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeEngineMissing, "the file system of %s has no unnamed files (O_TMPFILE)", dir).
			WithHint("Put BOTHY_HOME on ext4, XFS, Btrfs or tmpfs.").Because(err)
	}
	return append(files, os.NewFile(uintptr(fd), "overlay")), nil
}

// panicOutput returns the tail of the sentry's output when it panicked.
func panicOutput(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, driver.PanicLog))
	if err != nil {
		return ""
	}
	return string(b[:min(len(b), 600)])
}

// firstLine returns the first line of an error, truncated if it is long.
func firstLine(words string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(words), "\n")
	return line[:min(len(line), 200)]
}
