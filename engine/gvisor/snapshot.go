package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine"
	"github.com/bothy-dev/bothy/engine/gvisor/driver"
	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

// Snapshot checkpoints the kernel with everything in it. The checkpoint is
// consistent, because the kernel is paused around it. It is written without the
// sandbox's CPU limit, so that a small limit does not prolong the pause.
func (m *Machine) Snapshot(_ context.Context, o bothy.SnapshotOptions) error {
	i, err := m.prepare(o)
	if err != nil {
		return err
	}
	defer i.close()
	if err := m.pause(); err != nil {
		return err
	}
	if o.OnPaused != nil {
		o.OnPaused()
	}
	err = m.write(o, i)
	if err == nil && o.Stop {
		return nil
	}
	within := m.e.control()
	if errors.As(err, &hung{}) {
		within = min(within, hungTime) // it has had its time
	}
	return errors.Join(err, m.unpause(within), i.cut())
}

// prepare does what can be done while the machine is running. The image has no files
// if no memory is to be written.
func (m *Machine) prepare(o bothy.SnapshotOptions) (*image, error) {
	i := &image{}
	if o.MemoryDir == "" {
		return i, nil
	}
	if err := i.create(o.MemoryDir); err != nil {
		return nil, diskFull(err, o.MemoryDir)
	}
	if o.Stop {
		return i, nil
	}
	if used, err := m.group.SharedMemory(); err == nil && !m.e.off[tuning.WriteAhead] {
		i.writeAhead(used)
	}
	return i, nil
}

func (m *Machine) write(o bothy.SnapshotOptions, i *image) error {
	if o.FilesTar != "" {
		if err := m.writeFiles(o.FilesTar); err != nil {
			return err
		}
	}
	if o.MemoryDir == "" {
		return nil
	}
	if err := m.checkpoint(i, o.Compact); err != nil {
		return fmt.Errorf("checkpoint %s: %w", m.ID(), diskFull(err, o.MemoryDir))
	}
	return nil
}

// checkpoint has the sentry write an image, as Sandbox.Checkpoint would, except that the library
// would create the files itself.
func (m *Machine) checkpoint(i *image, small bool) error {
	m.mu.Lock()
	bytes := m.limits.MemoryBytes()
	m.mu.Unlock()
	if used, err := m.group.MemoryUsed(); err == nil {
		bytes = used
	}
	return m.do(m.e.timeFor(bytes), driver.Op{Name: driver.OpCheckpoint, Small: small}, sizeOf(i.files), i.files...)
}

// diskFull restores the error number of an error that the sentry sent as text. If a state file
// could not be written, the text does not always say why; a full disk is then taken as the
// reason.
func diskFull(err error, dir string) error {
	var disk unix.Statfs_t
	full := unix.Statfs(dir, &disk) == nil && disk.Bavail*uint64(disk.Bsize) < fullBelow
	if full || strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return errors.Join(err, unix.ENOSPC)
	}
	return err
}

// fullBelow is the free space in bytes below which a disk counts as full.
const fullBelow = 1 << 20

// writeFiles writes the overlay's upper layer as a tar.
func (m *Machine) writeFiles(path string) error {
	m.mu.Lock()
	limits := m.limits
	m.mu.Unlock()
	tar, err := engine.CreateFilesTar(path, limits)
	if err != nil {
		return err
	}
	if err := errors.Join(m.sendFiles(tar, m.e.timeFor(int64(limits.DiskMB)<<20)), tar.Close()); err != nil {
		return fmt.Errorf("read the files of %s: %w", m.ID(), diskFull(err, filepath.Dir(path)))
	}
	return nil
}

// sendFiles has the sentry send the tar.
func (m *Machine) sendFiles(to io.Writer, within time.Duration) error {
	pipe, err := newTarPipe(to)
	if err != nil {
		return err
	}
	return pipe.end(m.do(within, driver.Op{Name: driver.OpTar, Container: m.sb.name}, pipe.copied.Load, pipe.in))
}

// pausedMark is a file that exists in a machine's folder while the kernel may
// be paused and its CPU unlimited, for a server that takes over.
const pausedMark = "paused"

// pause and unpause stop the kernel's tasks, not the sentry. The kernel counts
// pauses, and panics at one unpause too many.
func (m *Machine) pause() error {
	m.steering.Lock()
	defer m.steering.Unlock()
	begun, err := m.beginPause()
	if err != nil || !begun {
		return err
	}
	if err := m.do(m.e.control(), driver.Op{Name: driver.OpPause}, nil); err != nil {
		return errors.Join(fmt.Errorf("pause %s: %w", m.id, err), m.endPause(err))
	}
	return nil
}

// beginPause lifts the limits. It reports false if the kernel is already paused.
func (m *Machine) beginPause() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tasks == paused {
		return false, nil
	}
	if err := os.WriteFile(filepath.Join(m.dir, pausedMark), nil, 0o600); err != nil {
		return false, err
	}
	// A sandbox that has just used up its share would take long even to pause.
	if err := m.group.SetLimits(startLimits(m.limits)); err != nil {
		return false, err
	}
	m.tasks = paused
	return true, nil
}

// endPause undoes beginPause if the kernel could not be paused.
func (m *Machine) endPause(why error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.As(why, &hung{}) {
		m.tasks = unsure
		return nil
	}
	m.tasks = running
	return errors.Join(m.restoreLimits(), os.Remove(filepath.Join(m.dir, pausedMark)))
}

func (m *Machine) unpause(within time.Duration) error {
	m.steering.Lock()
	defer m.steering.Unlock()
	m.mu.Lock()
	if m.tasks == running {
		m.mu.Unlock()
		return nil
	}
	limited := m.restoreLimits()
	m.mu.Unlock()
	if err := m.do(within, driver.Op{Name: driver.OpResume}, nil); err != nil {
		return errors.Join(limited, fmt.Errorf("let %s go on: %w", m.id, err))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks = running
	return errors.Join(limited, os.Remove(filepath.Join(m.dir, pausedMark)))
}

// Restore starts a machine from a checkpoint. Its memory is loaded while it already runs,
// touched pages first.
func (e *Engine) Restore(ctx context.Context, spec bothy.MachineSpec, dir string) (bothy.Machine, error) {
	state, all, err := imageSize(dir)
	if err != nil {
		return nil, damaged(err)
	}
	within := e.timeFor(all)
	if e.controlTime > 0 {
		within = e.controlTime
	}
	rctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	m, err := e.launch(rctx, spec, func(p *preparedSentry) error {
		if err := p.group.SetLimits(restoring(spec.Limits, state)); err != nil {
			return err
		}
		err := p.restore(rctx, dir)
		switch {
		case err == nil || rctx.Err() != nil:
			return err
		case p.group.OOMKills() > 0:
			return damaged(fmt.Errorf("it takes more memory than a kernel of this size: %w", err))
		}
		return damaged(err)
	})
	if err != nil && rctx.Err() != nil && ctx.Err() == nil {
		err = damaged(fmt.Errorf("it is not read within %v: %w", within, err))
	}
	if err != nil {
		return nil, e.ofEarlierBuild(spec.Build, engine.StartError("gVisor", "engine.restore", err))
	}
	return m, nil
}

// restore has the sentry read an image.
func (p *preparedSentry) restore(ctx context.Context, dir string) error {
	files := []*os.File{p.packets}
	for _, name := range driver.ImageFiles {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		defer f.Close()
		files = append(files, f)
	}
	return p.do(ctx, driver.Op{Name: driver.OpRestore}, files...)
}

// imageSize returns the size of a checkpoint's kernel file, and of all its files.
func imageSize(dir string) (state, all int64, err error) {
	for _, name := range driver.ImageFiles {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return 0, 0, err
		}
		if name == driver.StateFile {
			state = st.Size()
		}
		all += st.Size()
	}
	return state, all, nil
}

func damaged(err error) error {
	return bothy.Errorf(bothy.CodeSnapshotDamaged, "the snapshot's memory cannot be woken").
		WithHint("Use the files of the snapshot, or another one.").Because(err)
}
