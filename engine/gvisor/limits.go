package gvisor

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/memory"
)

// hostTasks bounds the threads and processes of one sentry on the host. A sandbox's process
// needs a few of them.
const hostTasks = 16384

func cgroupLimits(l bothy.Limits) cgroup.Limits {
	return cgroup.Limits{CPU: l.CPU, MemoryBytes: memory.GVisor(l), PIDs: hostTasks}
}

// startLimits are the limits of a machine while no user code runs in it.
func startLimits(l bothy.Limits) cgroup.Limits {
	c := cgroupLimits(l)
	c.CPU, c.MemoryBytes = 0, memory.GVisorSnapshot(l)
	return c
}

// restoreCPUs is how many processors a machine may use while its kernel is read.
const restoreCPUs = 4

// restoring returns the limits of a machine while its kernel is read from a file of
// that size, which may be crafted to exhaust memory.
func restoring(l bothy.Limits, state int64) cgroup.Limits {
	c := cgroupLimits(l)
	c.CPU = max(restoreCPUs, l.CPU)
	c.MemoryBytes = memory.GVisorRestore(l, state)
	return c
}

const (
	// restrainAgain is the interval at which to check whether memory used for a
	// snapshot was freed, and restrainAfter how long to wait for it.
	restrainAgain = 500 * time.Millisecond
	restrainAfter = 30 * time.Second
	// restrainBelow is the part of the sandbox's limit below which that memory counts as freed. Nearer to
	// the limit, a program would be killed for what the snapshot still holds.
	restrainBelow = 0.75
)

// restoreLimits restores the machine's limits. Its memory is limited again only once it uses no more
// than that, because the host's kernel would otherwise kill it at once. m.mu is held.
func (m *Machine) restoreLimits() error {
	want := cgroupLimits(m.limits)
	used, err := m.group.MemoryUsed()
	if err != nil {
		return err
	}
	fits := used < want.MemoryBytes
	if !fits {
		want.MemoryBytes = memory.GVisorSnapshot(m.limits)
	}
	err = m.group.SetLimits(want)
	if errors.Is(err, unix.EBUSY) { // it uses more, by the kernel's own count
		fits, err = false, nil
	}
	if err != nil {
		return err
	}
	switch {
	case fits && float64(used) < restrainBelow*float64(m.limits.MemoryBytes()):
		m.lenient = time.Time{}
		return nil
	case m.lenient.IsZero():
		m.lenient = time.Now().Add(restrainAfter)
	}
	time.AfterFunc(restrainAgain, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.tasks != running || m.ending || m.lenient.IsZero() || fits && time.Now().After(m.lenient) {
			return
		}
		if err := m.restoreLimits(); err != nil {
			m.e.log.Warn("cannot limit a machine again", "sandbox", m.id, "error", err)
		}
	})
	return nil
}

// isLenient reports whether memory over the limit may have been used by a
// snapshot.
func (m *Machine) isLenient() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tasks != running || time.Now().Before(m.lenient)
}
