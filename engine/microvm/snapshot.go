package microvm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine"
	"github.com/bothy-dev/bothy/engine/microvm/vm"
)

// The files of a snapshot's memory.
const (
	ramFile     = "ram"
	devicesFile = "devices"
	layerFile   = "disk"
	shapeFile   = "machine.json"
)

// written is the content of shapeFile.
type written struct {
	Build  string       `json:"build"`
	Class  class        `json:"shape"`
	Limits bothy.Limits `json:"limits"`
}

// stoppedMark is a file that exists in a machine's folder while its sandbox may be
// stopped for a snapshot, for a server that takes over.
const stoppedMark = "stopped"

// snapshotTime limits what is done inside for a snapshot.
const snapshotTime = 10 * time.Minute

// Snapshot stops the sandbox inside its kernel, then the machine, and writes the state of both.
// In a copy the supervisor runs first, because everything else is still stopped.
func (m *Machine) Snapshot(ctx context.Context, o bothy.SnapshotOptions) error {
	m.steering.Lock()
	defer m.steering.Unlock()
	ctx, cancel := m.bound(ctx, snapshotTime)
	defer cancel()
	c, err := m.open(ctx)
	if err != nil {
		return m.hungError(err)
	}
	defer c.Close()
	if err := os.WriteFile(filepath.Join(m.dir, stoppedMark), nil, 0o600); err != nil {
		return err
	}
	err = m.write(ctx, c, o)
	if err == nil && o.Stop {
		return nil
	}
	return m.hungError(errors.Join(err, m.goOn(context.WithoutCancel(ctx), c)))
}

// open connects to the monitor of a running machine.
func (m *Machine) open(ctx context.Context) (monitor, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience(), errSilent)
	defer cancel()
	return m.e.vmm.open(ctx, m.dir)
}

// hungError says what to do about a machine that does not answer.
func (m *Machine) hungError(err error) error {
	if !errors.Is(err, errSilent) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return bothy.Errorf(bothy.CodeEngine, "the virtual machine of sandbox %s does not answer", m.id).
		WithHint("Try again if the host is overloaded; a sandbox whose machine hangs can be deleted.").Because(err)
}

func (m *Machine) write(ctx context.Context, c monitor, o bothy.SnapshotOptions) error {
	if err := m.resumeCPUs(ctx, c); err != nil {
		return err
	}
	if _, err := m.ask(ctx, vm.Request{Op: vm.OpFreeze}); err != nil {
		return err
	}
	if o.FilesTar != "" {
		if err := m.writeFiles(ctx, o.FilesTar); err != nil {
			return fmt.Errorf("read the files of %s: %w", m.id, err)
		}
	}
	if err := m.pauseCPUs(ctx, c); err != nil {
		return err
	}
	if o.MemoryDir == "" {
		return nil
	}
	if err := m.writeMemory(ctx, c, o.MemoryDir); err != nil {
		return fmt.Errorf("write the memory of %s: %w", m.id, err)
	}
	return nil
}

// writeFiles has the machine send its changed files. The host never reads its disk.
func (m *Machine) writeFiles(ctx context.Context, path string) error {
	m.mu.Lock()
	limits := m.limits
	m.mu.Unlock()
	tar, err := engine.CreateFilesTar(path, limits)
	if err != nil {
		return err
	}
	_, err = ask(ctx, m.dir, vm.Request{Op: vm.OpFiles}, tar)
	return errors.Join(err, tar.Close())
}

// writeMemory writes the memory of a paused machine.
func (m *Machine) writeMemory(ctx context.Context, c monitor, dir string) error {
	create := func(name string, write func(*os.File) error) error {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	if err := copyFile(filepath.Join(m.dir, layerName), filepath.Join(dir, layerFile)); err != nil {
		return err
	}
	err := create(ramFile, func(f *os.File) error {
		below, err := m.openBelow()
		if err != nil {
			return err
		}
		defer below.Close()
		return writeRAM(f, m.proc.PID, m.ramAt, m.ramSize(), below, m.ramFD == 0)
	})
	if err != nil {
		return err
	}
	// This comes last because QEMU reports a full disk less clearly.
	if err := create(devicesFile, func(f *os.File) error { return c.save(ctx, f) }); err != nil {
		return err
	}
	m.mu.Lock()
	w := written{Build: m.build, Class: m.class, Limits: m.limits}
	m.mu.Unlock()
	return create(shapeFile, func(f *os.File) error { return json.NewEncoder(f).Encode(w) })
}

// openBelow opens the file behind the machine's memory: the one QEMU made for a booted machine,
// or the one it was restored from, which may have been unlinked.
func (m *Machine) openBelow() (*os.File, error) {
	dir := fmt.Sprintf("/proc/%d/fd/", m.proc.PID)
	if m.ramFD != 0 {
		return os.Open(dir + strconv.Itoa(m.ramFD))
	}
	fds, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, fd := range fds {
		if to, err := os.Readlink(dir + fd.Name()); err == nil && strings.HasPrefix(to, ramName) {
			return os.Open(dir + fd.Name())
		}
	}
	return nil, errors.New("QEMU has no memory for the machine")
}

// pauseCPUs and resumeCPUs stop and resume the machine's processors.
func (m *Machine) pauseCPUs(ctx context.Context, c monitor) error {
	if err := c.pause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = true
	return nil
}

func (m *Machine) resumeCPUs(ctx context.Context, c monitor) error {
	if err := c.resume(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = false
	return nil
}

// goOn lets everything continue, with the right time. m.steering is held.
func (m *Machine) goOn(ctx context.Context, c monitor) error {
	if err := m.resumeCPUs(ctx, c); err != nil {
		return err
	}
	q := vm.Request{Op: vm.OpThaw, UnixNano: time.Now().UnixNano()}
	m.mu.Lock()
	late, limits := m.late, m.limits
	m.mu.Unlock()
	thaw := func() (vm.Reply, error) { return m.ask(ctx, q) }
	var err error
	if late {
		inner := m.class.innerLimits(limits)
		q.Limits = &inner
		err = m.withBalloon(ctx, c, limits, thaw)
	} else {
		_, err = thaw()
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.late = false
	m.mu.Unlock()
	if err := os.Remove(filepath.Join(m.dir, stoppedMark)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Freeze stops the machine's processors, and with them its clocks.
func (m *Machine) Freeze(ctx context.Context) error {
	m.steering.Lock()
	defer m.steering.Unlock()
	return m.steer(ctx, m.pauseCPUs)
}

// Thaw lets it continue.
func (m *Machine) Thaw(ctx context.Context) error {
	m.steering.Lock()
	defer m.steering.Unlock()
	return m.steer(ctx, m.goOn)
}

func (m *Machine) steer(ctx context.Context, f func(context.Context, monitor) error) error {
	ctx, cancel := m.bound(ctx, patience())
	defer cancel()
	c, err := m.open(ctx)
	if err != nil {
		return m.hungError(err)
	}
	defer c.Close()
	return m.hungError(f(ctx, c))
}

// Restore starts a machine from a snapshot. Its memory is read on demand.
func (e *Engine) Restore(ctx context.Context, spec bothy.MachineSpec, dir string) (bothy.Machine, error) {
	w, err := readWritten(dir)
	if err != nil {
		return nil, err
	}
	if build := cmp.Or(spec.Build, e.own.Name); w.Build != build {
		return nil, bothy.Errorf(bothy.CodeUnsupported, "the memory was written by engine build %s, and not by %s", w.Build, build).
			WithHint("Use the files of the snapshot.").Because(bothy.ErrMemoryUnusable)
	}
	if err := w.Class.holds(spec.Limits); err != nil {
		return nil, err
	}
	if e.o.Acceleration == bothy.AccelerationEmulated && !sameRate(w.Class.Ticks, rateSince(e.made)) {
		return nil, bothy.Errorf(bothy.CodeUnsupported, "the memory was written on a host whose clock runs at another rate").
			WithHint("Use the files of the snapshot.").Because(bothy.ErrMemoryUnusable)
	}
	ram, err := os.Open(filepath.Join(dir, ramFile))
	if err != nil {
		return nil, damaged(err)
	}
	defer ram.Close()
	if st, err := ram.Stat(); err != nil || st.Size() != int64(w.Class.RAMMB)<<20 {
		return nil, damaged(errors.Join(err, errors.New("the memory is not whole")))
	}
	devices, err := os.Open(filepath.Join(dir, devicesFile))
	if err != nil {
		return nil, damaged(err)
	}
	defer devices.Close()
	p := plan{spec: spec, from: e.own, build: w.Build, class: w.Class, ram: ram, layer: filepath.Join(dir, layerFile)}
	if !isFile(p.layer) {
		return nil, damaged(errors.New("there is no disk"))
	}
	if p.kept, err = e.holdBuild(spec.Build); err != nil {
		return nil, err
	}
	if p.kept != nil {
		p.from, p.spec.Guest = p.kept, p.kept.Path(roleGuest)
	}
	m, err := e.launch(ctx, p, func(ctx context.Context, m *Machine, c monitor) error {
		return m.wake(ctx, c, devices, w.Limits)
	})
	if err != nil {
		p.kept.Release()
		return nil, engine.StartError("microvm", "engine.restore", err)
	}
	return m, nil
}

// wake loads the saved state into a new machine and resumes the guest in it.
func (m *Machine) wake(ctx context.Context, c monitor, devices *os.File, before bothy.Limits) error {
	if err := mapOver(m.proc.PID, m.ramAt, m.ramSize(), m.ramFD); err != nil {
		return err
	}
	if err := c.load(ctx, devices); err != nil {
		m.awaitEnd(err) // QEMU ends if it cannot, and says why
		return damaged(withWords(err, m.words.text()))
	}
	if err := c.resume(ctx); err != nil {
		return err
	}
	q := vm.Request{Op: vm.OpWake, UnixNano: time.Now().UnixNano(), Entropy: entropy()}
	wake := func() (vm.Reply, error) { return ask(ctx, m.dir, q, nil) }
	if inner := m.class.innerLimits(m.limits); inner != m.class.innerLimits(before) {
		q.Limits = &inner
		return m.withBalloon(ctx, c, m.limits, wake)
	}
	_, err := wake()
	return err
}

const (
	// maxShape bounds the size of shapeFile, which the server reads.
	maxShape = 64 << 10
	// mostMB and mostCPUs limit its values, so that computations with them cannot overflow.
	mostMB   = 1 << 30
	mostCPUs = 1 << 10
)

func readWritten(dir string) (w written, err error) {
	b, err := readShape(filepath.Join(dir, shapeFile))
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	if err == nil {
		err = w.Class.check()
	}
	if err != nil {
		return w, damaged(err)
	}
	return w, nil
}

func readShape(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxShape+1))
	if err == nil && len(b) > maxShape {
		err = fmt.Errorf("%s is longer than %d bytes", shapeFile, maxShape)
	}
	return b, err
}

// check refuses a class that no machine can have.
func (s class) check() error {
	in := func(n, from, to int) bool { return from <= n && n <= to }
	if !in(s.RAMMB, 1, mostMB) || !in(s.CPUs, 1, mostCPUs) || !in(s.OpenMB, 0, mostMB) || !in(s.OwnMB, 0, mostMB) {
		return errors.New("it describes no machine")
	}
	return nil
}

func damaged(err error) error {
	return bothy.Errorf(bothy.CodeSnapshotDamaged, "the snapshot's memory cannot be woken").
		WithHint("Use the files of the snapshot, or another one.").Because(err)
}
