package fake

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/bothy-dev/bothy"
)

// Machine implements bothy.Machine.
type Machine struct {
	e    *Engine
	spec bothy.MachineSpec
	done chan struct{}
	once sync.Once

	mu     sync.Mutex
	exit   bothy.Exit
	limits bothy.Limits
	memory int64
	used   chan struct{} // closed and replaced when memory changes
	nic    *nic
	frozen bool

	inside   Inside // nil unless Host.Boot made it
	restored string
	replaced *Machine // the machine with the same ID that was running already
}

var _ bothy.Machine = (*Machine)(nil)

func newMachine(e *Engine, spec bothy.MachineSpec) *Machine {
	return &Machine{e: e, spec: spec, limits: spec.Limits, done: make(chan struct{}), used: make(chan struct{})}
}

func (m *Machine) ID() string            { return m.spec.ID }
func (m *Machine) State() []byte         { return []byte(`{}`) }
func (m *Machine) Build() string         { return m.e.info.Build }
func (m *Machine) Done() <-chan struct{} { return m.done }

func (m *Machine) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// Limits returns the limits in force.
func (m *Machine) Limits() bothy.Limits {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.limits
}

// RestoredFrom is the snapshot's folder that it was restored from, or "".
func (m *Machine) RestoredFrom() string { return m.restored }

// Exit returns how it ended.
func (m *Machine) Exit() bothy.Exit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exit
}

// NetDevice plugs a new network device in; the one before is cut.
func (m *Machine) NetDevice(context.Context) (bothy.NetDevice, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nic != nil {
		m.nic.close()
	}
	host, guest := newNetDevice()
	m.nic = newNIC(guest)
	if m.inside != nil {
		m.nic.forward(m.inside.Dial)
		return host, nil
	}
	l, err := m.nic.listen(bothy.GuestPort)
	if err != nil {
		return nil, err
	}
	go acceptAndClose(l)
	return host, nil
}

// Inside is what Host.Boot made for it.
func (m *Machine) Inside() Inside { return m.inside }

// turnOff ends what is inside.
func (m *Machine) turnOff() error {
	if m.inside == nil {
		return nil
	}
	return m.inside.Close()
}

func acceptAndClose(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Close()
	}
}

// End makes the machine end by itself.
func (m *Machine) End(x bothy.Exit) {
	m.once.Do(func() {
		m.mu.Lock()
		m.exit = x
		if m.nic != nil {
			m.nic.close()
		}
		m.mu.Unlock()
		_ = m.turnOff()
		m.e.host.mu.Lock()
		if m.e.host.machines[m.spec.ID] == m { // and not one with the same id that was made meanwhile
			delete(m.e.host.machines, m.spec.ID)
			delete(m.e.held, m.spec.ID)
			if o := m.replaced; o != nil && !o.ended() {
				m.e.host.machines[m.spec.ID] = o
				m.e.held[m.spec.ID] = true
			}
		}
		m.e.host.mu.Unlock()
		close(m.done)
	})
}

// Destroy ends it on purpose.
func (m *Machine) Destroy(context.Context) error {
	if m.e.host.Destroying != nil {
		m.e.host.Destroying(m.spec.ID)
	}
	m.End(bothy.Exit{Reason: bothy.EndTerminated, Detail: "the sandbox was terminated"})
	return nil
}

// Stats returns what was passed to UseMemory.
func (m *Machine) Stats(context.Context) (bothy.MachineStats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bothy.MachineStats{
		MemoryBytes: m.memory, MemoryLimitBytes: m.limits.MemoryBytes(),
		DiskLimitBytes: int64(m.limits.DiskMB) << 20,
	}, nil
}

// SetLimits changes the limits.
func (m *Machine) SetLimits(_ context.Context, l bothy.Limits) error {
	if m.e.host.Limiting != nil {
		if err := m.e.host.Limiting(m.spec.ID, l); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limits = l
	return nil
}

// UseMemory pretends that the sandbox uses that much.
func (m *Machine) UseMemory(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memory = bytes
	close(m.used)
	m.used = make(chan struct{})
}

// WatchMemory reports what was passed to UseMemory.
func (m *Machine) WatchMemory(ctx context.Context, fn func(used, limit int64)) error {
	for {
		m.mu.Lock()
		used, limit, changed := m.memory, m.limits.MemoryBytes(), m.used
		m.mu.Unlock()
		fn(used, limit)
		select {
		case <-changed:
		case <-m.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Freeze only records the call.
func (m *Machine) Freeze(context.Context) error { return m.setFrozen(true) }

// Thaw undoes Freeze.
func (m *Machine) Thaw(ctx context.Context) error {
	if m.e.host.Thawing != nil {
		if err := m.e.host.Thawing(ctx, m.spec.ID); err != nil {
			return err
		}
	}
	return m.setFrozen(false)
}

// Frozen reports whether it is frozen.
func (m *Machine) Frozen() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.frozen
}

func (m *Machine) setFrozen(f bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen = f
	return nil
}

// save writes the files into a tar.
func (m *Machine) save(path string) error {
	if m.inside == nil {
		return os.WriteFile(path, []byte(emptyTar), 0o600)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(m.inside.Save(f), f.Close())
}

// Snapshot writes the files, and what Restore needs.
func (m *Machine) Snapshot(ctx context.Context, o bothy.SnapshotOptions) error {
	if m.e.host.Snapshotting != nil {
		if err := m.e.host.Snapshotting(ctx, m.spec.ID); err != nil {
			return err
		}
	}
	if o.FilesTar != "" {
		if err := m.save(o.FilesTar); err != nil {
			return err
		}
	}
	if o.MemoryDir == "" {
		return nil
	}
	if err := m.save(filepath.Join(o.MemoryDir, filesName)); err != nil {
		return err
	}
	b, err := json.Marshal(snapshot{Build: m.e.info.Build})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.MemoryDir, "state.json"), b, 0o600)
}
