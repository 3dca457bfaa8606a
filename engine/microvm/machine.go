package microvm

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/microvm/vm"
	"github.com/bothy-dev/bothy/engine/process"
)

// Machine implements bothy.Machine.
type Machine struct {
	e     *Engine
	id    string
	build string
	kept  *builds.Held // if that is an earlier one
	class class
	proc  process.Process
	group *cgroup.Group
	dir   string
	uid   int // of QEMU on the host, or 0 if an older server chose it
	words *words
	done  chan struct{}

	// ramAt is the address of its memory in QEMU, and ramFD the descriptor in QEMU of the file
	// that it was restored from, or 0.
	ramAt uint64
	ramFD int

	// steering is held while it is stopped or resumed, and taken before mu.
	steering sync.Mutex

	mu     sync.Mutex
	limits bothy.Limits
	// paused is set while the processors are stopped, and late if the limits inside could not be
	// set because of that.
	paused, late bool
	last         vm.Stats
	ending       bool // Destroy was called
	diskFull     bool
	exit         bothy.Exit
}

var _ bothy.Machine = (*Machine)(nil)

// errEnded cancels whatever waits for a machine that has ended.
var errEnded = errors.New("the machine ended")

// state is what Adopt needs.
type state struct {
	PID       int          `json:"pid"`
	UID       int          `json:"uid,omitempty"`
	StartTime uint64       `json:"start_time"`
	Limits    bothy.Limits `json:"limits"`
	Build     string       `json:"build"`
	Class     class        `json:"shape"`
	RAMAt     uint64       `json:"ram_at"`
	RAMFD     int          `json:"ram_fd,omitempty"`
}

// newMachine takes over a process. The machine frees everything when the process ends.
func (e *Engine) newMachine(p plan, proc process.Process, group *cgroup.Group, dir string) *Machine {
	m := &Machine{
		e: e, id: p.spec.ID, build: p.build, kept: p.kept, class: p.class, proc: proc, group: group, dir: dir, uid: p.uid,
		limits: p.spec.Limits, words: listen(dir), done: make(chan struct{}),
	}
	go m.watch()
	go m.watchEvents()
	return m
}

// ID is the sandbox's id.
func (m *Machine) ID() string { return m.id }

// Build is the build of the engine that started the machine.
func (m *Machine) Build() string { return m.build }

// State is what Adopt needs.
func (m *Machine) State() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, _ := json.Marshal(state{
		PID: m.proc.PID, UID: m.uid, StartTime: m.proc.Started, Limits: m.limits, Build: m.build, Class: m.class, RAMAt: m.ramAt, RAMFD: m.ramFD,
	})
	return b
}

// Adopt finds a machine that outlived the server that started it.
func (e *Engine) Adopt(ctx context.Context, id string, b []byte) (bothy.Machine, error) {
	var st state
	if err := json.Unmarshal(b, &st); err != nil {
		return nil, fmt.Errorf("adopt %s: %w", id, err)
	}
	proc, err := process.Open(st.PID)
	if err != nil && !process.Gone(err) {
		return nil, fmt.Errorf("adopt %s: %w", id, err)
	}
	if err == nil && (proc.Started != st.StartTime || !proc.Runs()) {
		proc.Close()
		err = errEnded
	}
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeNotFound, "the machine of sandbox %s is gone", id).Because(err)
	}
	if err := e.hold(id); err != nil {
		proc.Close()
		return nil, err
	}
	p := plan{spec: bothy.MachineSpec{ID: id, Limits: st.Limits}, class: st.Class, uid: st.UID, build: st.Build}
	// Its snapshots hold only files if the build was not kept, or may not be used.
	p.kept, _ = e.holdBuild(st.Build)
	m := e.newMachine(p, proc, e.cgroups.Open(id), e.dir(id))
	m.ramAt, m.ramFD = st.RAMAt, st.RAMFD
	// One that was stopped for a snapshot waits for Thaw; see stoppedMark.
	if _, err := os.Stat(filepath.Join(m.dir, stoppedMark)); err == nil {
		m.mu.Lock()
		m.paused = true
		m.mu.Unlock()
	} else if err := m.Thaw(ctx); err != nil {
		e.log.Warn("cannot thaw a machine that was found again", "sandbox", id, "error", err)
	}
	return m, nil
}

func (m *Machine) ramSize() uint64 { return uint64(m.class.RAMMB) << 20 }

// bound returns a context that also ends when the machine ends, and after d.
func (m *Machine) bound(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, stop := context.WithTimeout(ctx, d)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-m.done:
			cancel(errEnded)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); stop() }
}

// NetDevice opens the socket of the machine's network.
func (m *Machine) NetDevice(context.Context) (bothy.NetDevice, error) {
	c, err := openNetDevice(filepath.Join(m.dir, netDeviceSocket))
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Done is closed when the machine has ended.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Exit returns how the machine ended, once Done is closed.
func (m *Machine) Exit() bothy.Exit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exit
}

// watch waits until QEMU ends, finds out why, and frees what it held.
func (m *Machine) watch() {
	status, known := m.proc.WaitStatus()
	said := m.words.end()
	m.mu.Lock()
	m.exit = m.cause(said, process.Ended(status, known))
	m.mu.Unlock()
	if err := m.release(); err != nil {
		m.e.log.Warn("machine left something behind", "sandbox", m.ID(), "error", err)
	}
	close(m.done)
}

// release removes the cgroup and the folder.
func (m *Machine) release() error {
	m.proc.Close()
	m.group.Kill()
	err := errors.Join(m.group.Remove(), m.e.uids.Release(m.uid, m.dir), os.RemoveAll(m.dir))
	m.kept.Release()
	m.e.releaseID(m.id)
	return err
}

// end is Destroy for a machine that was not handed out.
func (m *Machine) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := m.Destroy(ctx); err != nil {
		m.e.log.Warn("machine cannot be ended", "sandbox", m.ID(), "error", err)
	}
}

// Destroy ends the machine and returns when nothing of it is left.
func (m *Machine) Destroy(ctx context.Context) error {
	m.mu.Lock()
	m.ending = true
	m.mu.Unlock()
	if err := m.proc.Kill(); err != nil {
		return err
	}
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// askTime limits a request to a machine, even an emulated one.
const askTime = 60 * time.Second

// shortened replaces askTime in tests, even while machines are asked.
var shortened atomic.Int64

func patience() time.Duration { return cmp.Or(time.Duration(shortened.Load()), askTime) }

func (m *Machine) ask(ctx context.Context, q vm.Request) (vm.Reply, error) {
	ctx, cancel := m.bound(ctx, patience())
	defer cancel()
	return ask(ctx, m.dir, q, nil)
}

// Stats returns what the host knows, and what the machine reports while it runs and
// no other call controls it.
func (m *Machine) Stats(ctx context.Context) (bothy.MachineStats, error) {
	cpu, err := m.group.CPUSeconds()
	if err != nil {
		return bothy.MachineStats{}, err
	}
	// No request may be on its way into a machine that is being stopped: it would come between
	// saving its memory and the state of its devices.
	if m.steering.TryLock() {
		m.askStats(ctx)
		m.steering.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return bothy.MachineStats{
		CPUSeconds: cpu, MemoryBytes: m.last.MemoryBytes, MemoryLimitBytes: m.limits.MemoryBytes(),
		DiskBytes: m.last.DiskBytes, DiskLimitBytes: int64(m.limits.DiskMB) << 20, Processes: m.last.Processes,
	}, nil
}

// askStats asks a machine that runs. m.steering is held.
func (m *Machine) askStats(ctx context.Context) {
	m.mu.Lock()
	paused := m.paused
	m.mu.Unlock()
	if paused {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statsTime)
	defer cancel()
	r, err := m.ask(ctx, vm.Request{Op: vm.OpStats})
	if err != nil || r.Stats == nil {
		return
	}
	m.mu.Lock()
	m.last = *r.Stats
	m.mu.Unlock()
}

// statsTime is how long to wait for a machine that may just have been stopped. After that, its
// last report is returned.
const statsTime = 5 * time.Second

// SetLimits changes the host's cgroup and the limits inside.
func (m *Machine) SetLimits(ctx context.Context, l bothy.Limits) error {
	if err := m.class.holds(l); err != nil {
		return err
	}
	if err := checkSize(l); err != nil {
		return err
	}
	m.steering.Lock()
	defer m.steering.Unlock()
	m.mu.Lock()
	paused, before := m.paused, m.limits
	m.mu.Unlock()
	set := func(l bothy.Limits) error {
		if l.MemoryMB == before.MemoryMB {
			inner := m.class.innerLimits(l)
			_, err := m.ask(ctx, vm.Request{Op: vm.OpLimits, Limits: &inner})
			return err
		}
		return m.steer(ctx, func(ctx context.Context, c monitor) error { return m.setInner(ctx, c, l) })
	}
	if !paused {
		if err := set(l); err != nil {
			return err
		}
	}
	if err := m.group.SetLimits(m.class.hostLimits(l, l.CPU)); err != nil {
		if !paused {
			err = errors.Join(err, set(before))
		}
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limits, m.late = l, paused
	return nil
}

// setInner changes the limits inside. m.steering is held.
func (m *Machine) setInner(ctx context.Context, c monitor, l bothy.Limits) error {
	inner := m.class.innerLimits(l)
	return m.withBalloon(ctx, c, l, func() (vm.Reply, error) { return m.ask(ctx, vm.Request{Op: vm.OpLimits, Limits: &inner}) })
}

// withBalloon calls set, which sets the limits inside, once all the memory for them is
// available, and then takes back the excess.
func (m *Machine) withBalloon(ctx context.Context, c monitor, l bothy.Limits, set func() (vm.Reply, error)) error {
	open, err := c.ballooned(ctx)
	if err == nil && open < m.class.balloonBytes(l, m.class.neededBlocks(l)) {
		err = deflate(ctx, c, int64(m.ramSize()))
	}
	if err != nil {
		return err
	}
	r, err := set()
	if err != nil {
		return err
	}
	return c.balloon(ctx, m.class.balloonBytes(l, r.Blocks))
}

// deflate empties the balloon of a machine that runs, and waits until it is empty.
func deflate(ctx context.Context, c monitor, all int64) error {
	if err := c.balloon(ctx, all); err != nil {
		return err
	}
	for {
		if open, err := c.ballooned(ctx); err != nil || open >= all {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the machine's memory: %w", context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// WatchMemory passes on the machine's own notifications.
func (m *Machine) WatchMemory(ctx context.Context, fn func(used, limit int64)) error {
	ctx, cancel := m.bound(ctx, time.Duration(1<<62))
	defer cancel()
	return watchNews(ctx, m.dir, func(n vm.News) {
		m.mu.Lock()
		limit := m.limits.MemoryBytes()
		m.mu.Unlock()
		fn(n.MemoryBytes, limit)
	})
}

func entropy() []byte {
	b := make([]byte, 32)
	rand.Read(b)
	return b
}
