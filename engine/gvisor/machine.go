package gvisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/gvisor/netns"
	"github.com/bothy-dev/bothy/engine/process"
)

// A sentry is a process that runs or has run one.
type sentry struct {
	name   string // of its preparedSentry
	socket string // its control socket
	pid    int
}

// Machine implements bothy.Machine.
type Machine struct {
	e     *Engine
	id    string
	build string
	kept  *builds.Held // if that is an earlier one
	sb    *sentry
	group *cgroup.Group
	dir   string
	uid   int // of the sentry on the host, or 0 if an older server chose it
	proc  process.Process
	done  chan struct{}
	// releaseID frees the ID for another machine, once.
	releaseID func()

	// steering is held while the kernel is paused, resumed or given other limits, and taken
	// before mu. A kernel that hangs keeps it for long, so nothing else waits for it.
	steering sync.Mutex

	mu     sync.Mutex
	limits bothy.Limits
	tap    *os.File // opened but not yet handed out
	notify *os.File // see spawn; nil when it was read
	ending bool     // Destroy was called
	exit   bothy.Exit
	tasks  tasks
	// lenient is the time until which memory above the limit is no reason to kill, because a
	// snapshot used it. See restoreLimits.
	lenient time.Time
}

var (
	_ bothy.Machine   = (*Machine)(nil)
	_ bothy.Announcer = (*Machine)(nil)
	_ bothy.CPUMeter  = (*Machine)(nil)
)

// tasks says whether the kernel's tasks run.
type tasks int

const (
	running tasks = iota
	paused
	// unsure is the state after the previous server was killed around a snapshot, and
	// after a kernel has not answered. Thaw treats it as paused.
	unsure
)

// state is what Adopt needs.
type state struct {
	// Name is that of its preparedSentry.
	Name      string       `json:"name"`
	UID       int          `json:"uid,omitempty"`
	PID       int          `json:"pid"`
	StartTime uint64       `json:"start_time"`
	Socket    string       `json:"socket"`
	Limits    bothy.Limits `json:"limits"`
	Build     string       `json:"build"`
}

// newMachine takes over a sentry, which another build of the engine may have started; that build
// is kept as long as the machine. The caller has taken the id, and frees it if this fails.
func (e *Engine) newMachine(spec bothy.MachineSpec, user int, kept *builds.Held, sb *sentry, group *cgroup.Group, dir string) (*Machine, error) {
	p, err := process.Open(sb.pid)
	if err != nil {
		return nil, err
	}
	m := &Machine{e: e, id: spec.ID, build: spec.Build, kept: kept, sb: sb, group: group, dir: dir, uid: user, proc: p, limits: spec.Limits, done: make(chan struct{})}
	m.releaseID = sync.OnceFunc(func() { e.releaseID(m.id) })
	e.hold(sb.name)
	go m.watch()
	return m, nil
}

// ID is the sandbox's id.
func (m *Machine) ID() string { return m.id }

// Build is the build of the engine that started the machine.
func (m *Machine) Build() string { return m.build }

// State is what Adopt needs.
func (m *Machine) State() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, _ := json.Marshal(state{Name: m.sb.name, UID: m.uid, PID: m.proc.PID, StartTime: m.proc.Started, Socket: m.sb.socket, Limits: m.limits, Build: m.build})
	return b
}

// Adopt finds a machine that outlived the server that started it.
func (e *Engine) Adopt(_ context.Context, id string, b []byte) (bothy.Machine, error) {
	var st state
	if err := json.Unmarshal(b, &st); err != nil {
		return nil, fmt.Errorf("adopt %s: %w", id, err)
	}
	p, err := process.Open(st.PID)
	if err != nil && !process.Gone(err) {
		return nil, fmt.Errorf("adopt %s: %w", id, err)
	}
	if err != nil || !p.Is(st.StartTime) {
		return nil, bothy.Errorf(bothy.CodeNotFound, "the machine of sandbox %s is gone", id).Because(err)
	}
	name := cmp.Or(st.Name, id)
	sb := &sentry{name: name, socket: st.Socket, pid: st.PID}
	if err := e.take(id, true); err != nil {
		return nil, err
	}
	// Its snapshots hold only files if the build was not kept, or may not be used.
	kept, _ := e.holdBuild(st.Build)
	m, err := e.newMachine(bothy.MachineSpec{ID: id, Limits: st.Limits, Build: st.Build}, st.UID, kept, sb, e.cgroups.Open(name), filepath.Join(e.dir, name))
	if err != nil {
		kept.Release()
		e.releaseID(id)
		return nil, err
	}
	if err := m.group.SetFrozen(false); err != nil {
		e.log.Warn("cannot thaw a machine that was found again", "sandbox", id, "error", err)
	}
	if _, err := os.Stat(filepath.Join(m.dir, pausedMark)); err == nil {
		m.tasks = unsure
		if err := m.restoreLimits(); err != nil {
			e.log.Warn("cannot limit a machine that was found again", "sandbox", id, "error", err)
		}
	}
	return m, nil
}

// NetDevice opens the tap's other end.
func (m *Machine) NetDevice(context.Context) (bothy.NetDevice, error) {
	m.mu.Lock()
	tap := m.tap
	m.tap = nil
	m.mu.Unlock()
	if tap == nil {
		var err error
		if tap, err = m.e.nets.Open(m.proc.PID); err != nil {
			return nil, fmt.Errorf("open the network device of %s: %w", m.ID(), err)
		}
	}
	return &netDevice{f: tap}, nil
}

// announceTimeout is how long process 1 may take to listen before the server asks it.
const announceTimeout = 10 * time.Second

// Announced returns when process 1 listens or the machine has ended, and immediately on later
// calls.
func (m *Machine) Announced(ctx context.Context) {
	m.mu.Lock()
	notify := m.notify
	m.notify = nil
	m.mu.Unlock()
	if notify == nil {
		return
	}
	defer notify.Close()
	notify.SetReadDeadline(time.Now().Add(announceTimeout))
	defer context.AfterFunc(ctx, func() { notify.SetReadDeadline(time.Now()) })()
	notify.Read(make([]byte, 1)) // whatever happened, process 1 is asked next
}

// netDevice is a tap. Its file is non-blocking, so a waiting reader holds no
// thread.
type netDevice struct{ f *os.File }

func (c *netDevice) ReadFrame(p []byte) (int, error) {
	n, err := c.f.Read(p)
	if errors.Is(err, os.ErrClosed) {
		err = net.ErrClosed
	}
	return n, err
}

func (c *netDevice) WriteFrame(pieces ...[]byte) error {
	if len(pieces) == 1 {
		_, err := c.f.Write(pieces[0])
		return err
	}
	rc, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	var werr error
	err = rc.Write(func(fd uintptr) bool {
		_, werr = unix.Writev(int(fd), pieces)
		return werr != unix.EAGAIN
	})
	return errors.Join(err, werr)
}

func (c *netDevice) MTU() int     { return netns.MTU }
func (c *netDevice) Close() error { return c.f.Close() }

// Unchecked tells the gateway that checksums are not checked: the kernel inside regards what its
// packet socket delivers as checked.
func (c *netDevice) Unchecked() bool { return true }

// Done is closed when the machine has ended.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Exit returns how the machine ended, once Done is closed.
func (m *Machine) Exit() bothy.Exit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exit
}

// watch waits until the sentry ends, finds out why, and frees what it held.
func (m *Machine) watch() {
	status, known := m.proc.WaitStatus()
	m.mu.Lock()
	m.exit = m.cause(status, known)
	m.mu.Unlock()
	if err := m.release(); err != nil {
		m.e.log.Warn("machine left something behind", "sandbox", m.ID(), "error", err)
	}
	close(m.done)
}

// cause is called with m.mu held. The sentry ends by itself only when process 1 has ended.
func (m *Machine) cause(status unix.WaitStatus, known bool) bothy.Exit {
	switch {
	case m.ending:
		return bothy.Exit{Reason: bothy.EndTerminated, Detail: "the sandbox was terminated"}
	case m.group.OOMKills() > 0:
		return bothy.Exit{Reason: bothy.EndOutOfMemory, Detail: fmt.Sprintf("the sandbox used more than its %d MB of memory so quickly that no single process could be stopped in time; give it more with memory_mb", m.limits.MemoryMB)}
	}
	if tail := panicOutput(m.dir); tail != "" {
		m.e.log.Error("sentry failed", "sandbox", m.ID(), "panic_output", tail)
		return bothy.Exit{Reason: bothy.EndError, Detail: fmt.Sprintf("the sandbox's kernel failed (%s); the server's log has its panic output", firstLine(tail))}
	}
	if how := process.Ended(status, known); !known || status != 0 {
		m.e.log.Error("sentry ended by itself", "sandbox", m.ID(), "how", how)
		return bothy.Exit{Reason: bothy.EndError, Detail: "the sandbox's kernel " + how}
	}
	return bothy.Exit{Reason: bothy.EndExited, Detail: "the sandbox's first process ended"}
}

// release removes the cgroup and the folder.
func (m *Machine) release() error {
	m.mu.Lock()
	tap, notify := m.tap, m.notify
	m.tap, m.notify = nil, nil
	m.mu.Unlock()
	if tap != nil {
		tap.Close()
	}
	if notify != nil {
		notify.Close()
	}
	m.proc.Close()
	m.group.Kill()
	err := errors.Join(m.group.Remove(), m.e.uids.Release(m.uid, m.dir), os.RemoveAll(m.dir))
	m.kept.Release()
	m.e.releaseName(m.sb.name)
	m.releaseID()
	return err
}

// Destroy ends the machine and returns when nothing of it is left.
func (m *Machine) Destroy(ctx context.Context) error {
	m.mu.Lock()
	m.ending = true
	m.mu.Unlock()
	// With v1, a frozen process dies only when thawed.
	select {
	case <-m.done:
		return nil
	default:
		m.group.SetFrozen(false)
	}
	if err := m.proc.Kill(); err != nil {
		return err
	}
	// A machine made from a spare gets a new name, and need not wait.
	m.releaseID()
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CPUSeconds returns what the cgroup has used.
func (m *Machine) CPUSeconds() (float64, error) { return m.group.CPUSeconds() }

// Stats reads the cgroup.
func (m *Machine) Stats(context.Context) (bothy.MachineStats, error) {
	m.mu.Lock()
	l := m.limits
	m.mu.Unlock()
	cpu, err := m.CPUSeconds()
	if err != nil {
		return bothy.MachineStats{}, err
	}
	mem, err := m.group.MemoryUsed()
	return bothy.MachineStats{CPUSeconds: cpu, MemoryBytes: mem, MemoryLimitBytes: l.MemoryBytes(), DiskLimitBytes: int64(l.DiskMB) << 20}, err
}

// SetLimits changes the cgroup.
func (m *Machine) SetLimits(_ context.Context, l bothy.Limits) error {
	m.steering.Lock()
	defer m.steering.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.limits
	m.limits = l
	err := m.restoreLimits()
	if err != nil {
		m.limits = before
	}
	return err
}

// WatchMemory reports memory about the limit, below the hard ceiling.
func (m *Machine) WatchMemory(ctx context.Context, fn func(used, limit int64)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-m.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	m.mu.Lock()
	limit := m.limits.MemoryBytes()
	m.mu.Unlock()
	return m.group.WatchMemory(ctx, limit, func(used, limit int64) {
		if !m.isLenient() {
			fn(used, limit)
		}
	})
}

// Freeze stops the whole sentry, its clocks included.
func (m *Machine) Freeze(context.Context) error { return m.group.SetFrozen(true) }

// Thaw lets it continue.
func (m *Machine) Thaw(context.Context) error {
	return errors.Join(m.group.SetFrozen(false), m.unpause(m.e.control()))
}
