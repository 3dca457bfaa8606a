// Package command starts the commands of a sandbox, keeps their output, and
// reaps every process that ends. Only the guest's agent uses it.
//
// The agent is process 1, to which the kernel gives every orphan, so exactly one loop waits for
// children, and nothing else in the process may (including os/exec). Two rules make that safe. A
// child is only peeked at until the manager's lock is held, and reaped under it; so under the
// lock a known pid never names another process. And a child is forked and entered in the table
// under the same lock; so no exit is seen before its entry.
//
// Lock order: Manager.mu, then Process.mu, then output.mu.
package command

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
)

// marker is the variable that ties a process to the command that started it, even after it was
// reparented.
const marker = "BOTHY_COMMAND_ID"

// Size is the size of a terminal's window, in characters.
type Size struct{ Cols, Rows uint16 }

// Spec says what to run.
type Spec struct {
	Argv []string
	// Env is the whole environment. The command is looked up in its PATH.
	Env []string
	Dir string
	// User runs the command; nil means the agent's own user.
	User *account.User
	Tag  string
	// Internal marks what the agent runs for itself, such as the interpreter of
	// a code context: listings do not show it, and it does not count as work.
	Internal bool
	// Asked is the request as listings show it.
	Asked Asked
	// Terminal, if set, gives the command a terminal of that size.
	Terminal *Size
	// Stdin keeps an input pipe open. Input, if not nil, is the whole input.
	Stdin bool
	Input []byte
	// MergeStderr writes standard error to where standard output goes.
	MergeStderr bool
	// Extra are further files for the command, from descriptor 3 on. The caller closes them.
	Extra []*os.File
	// Timeout kills the command and all it started; 0 means never.
	Timeout time.Duration
	// OutputLimit is how much output is held; 0 means Config.OutputLimit.
	OutputLimit int
}

// Asked is the part of a caller's request that listings show unchanged.
type Asked struct {
	Env map[string]string
	Cwd string
}

// Config bounds a manager. Zero values mean the defaults.
type Config struct {
	// OutputLimit is the output held for one command (1 MiB).
	OutputLimit int
	// TotalOutput bounds the output held for all commands; beyond it each
	// holds only a little (16 MiB).
	TotalOutput int64
	// Ended and EndedOutput bound the ended commands that are remembered (256)
	// and the output held for them (2 MiB).
	Ended       int
	EndedOutput int64
	// Linger is how long output is awaited from processes that outlive the
	// command that started them (100 ms).
	Linger time.Duration
	// Cgroup is the folder of the cgroup in which commands start; empty means the caller's own.
	Cgroup string
}

// softOpenFiles is how many files a command may have open unless it raises the limit, as on any
// Linux. Some programs close every file that they might have.
const softOpenFiles = 1024

// Manager starts and remembers commands. Its methods may be called from many
// goroutines at once.
type Manager struct {
	cfg     Config
	null    *os.File
	cgroup  *os.File // nil for the caller's own
	total   atomic.Int64
	buffers sync.Pool
	// privileged is true if commands can be run as another user.
	privileged bool
	// rows is true if the kernel executes batches of system calls.
	rows bool
	// polls is true if the reaper polls for a while before it waits in the kernel.
	polls bool
	// openFiles is the limit on open files with which plain commands start.
	openFiles unix.Rlimit

	mu      sync.Mutex
	running map[int]*Process
	ended   []*Process // oldest first
	reaping bool       // the reaper is running
	vain    int        // how often the reaper has polled since a child ended
	// soon starts the reaper, if set. awaited is set while a goroutine waits for one command
	// that is about to end.
	soon    *time.Timer
	awaited bool
	closed  bool
}

// New returns a manager. There can be only one in a process.
func New(cfg Config) (*Manager, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	cfg.OutputLimit = max(cmp.Or(cfg.OutputLimit, 1<<20), minHeld)
	cfg.TotalOutput = cmp.Or(cfg.TotalOutput, 16<<20)
	cfg.Ended = cmp.Or(cfg.Ended, 256)
	cfg.EndedOutput = cmp.Or(cfg.EndedOutput, 2<<20)
	cfg.Linger = cmp.Or(cfg.Linger, 100*time.Millisecond)
	m := &Manager{cfg: cfg, null: null, privileged: os.Geteuid() == 0, rows: hasRows() && null.Fd() > 2, running: make(map[int]*Process)}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &m.openFiles); err == nil {
		m.openFiles.Cur = min(m.openFiles.Max, softOpenFiles)
	}
	if cfg.Cgroup != "" {
		if m.cgroup, err = os.Open(cfg.Cgroup); err != nil {
			null.Close()
			return nil, err
		}
	}
	m.polls = m.rows
	m.buffers.New = func() any { return new([segmentSize]byte) }
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	// A command shares this process's memory until it executes its program: nobody may trace it.
	if os.Getpid() == 1 {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// HasRows reports whether the kernel executes batches of calls, as only that of Bothy's gVisor
// does; see abi.PrctlBatch.
func (m *Manager) HasRows() bool { return m.rows }

// Start starts a command.
func (m *Manager) Start(s Spec) (*Process, error) {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return nil, bothy.Errorf(bothy.CodeCommandInvalid, "the command is empty").
			WithHint("Give a command line, or a list whose first element is the program.")
	}
	cred, err := m.credential(s.User)
	if err != nil {
		return nil, err
	}
	p := m.newProcess(s)
	path, err := m.findProgram(s.Argv[0], s.Env, s.Dir)
	if err != nil {
		return nil, startError(s, err)
	}
	attr := &syscall.ProcAttr{
		Dir: s.Dir, Env: append(slices.Clip(s.Env), marker+"="+p.id),
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: s.Terminal != nil, Credential: cred},
	}
	if m.cgroup != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(m.cgroup.Fd())
	}
	if m.rows && s.isPlain() {
		io, err := m.fork(p, func() (int, *stdio, error) { return m.forkPlain(path, s.Argv, attr) })
		if err != nil {
			return nil, startError(s, err)
		}
		p.begin(io)
		return p, nil
	}
	io, err := m.openIO(s)
	if err != nil {
		return nil, ioError(err)
	}
	attr.Files = append(io.child(), fds(s.Extra)...)
	_, err = m.fork(p, func() (int, *stdio, error) {
		pid, err := syscall.ForkExec(path, s.Argv, attr)
		return pid, io, err
	})
	io.closeChild()
	if err != nil {
		io.closeParent()
		return nil, startError(s, err)
	}
	p.begin(io)
	return p, nil
}

// fork starts the program and enters it in the table atomically.
func (m *Manager) fork(p *Process, start func() (int, *stdio, error)) (*stdio, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, os.ErrClosed
	}
	p.started = time.Now()
	pid, io, err := start()
	if err != nil {
		return nil, err
	}
	p.pid = pid
	p.stdin, p.terminal, p.outputs = io.stdin, io.terminal, io.outputs
	p.pending.Store(int32(1 + len(io.outputs)))
	m.forget(pid)
	m.running[pid] = p
	if m.rows && !m.reaping && m.soon == nil {
		m.soon = time.AfterFunc(reapDelay, m.startReaping)
	} else if !m.rows {
		m.startReapingLocked()
	}
	return io, nil
}

// freshID uses the host's randomness: this process's own is the same in all copies of a sandbox.
func freshID() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (m *Manager) newProcess(s Spec) *Process {
	limit := cmp.Or(s.OutputLimit, m.cfg.OutputLimit)
	return &Process{
		m: m, spec: s, id: freshID(), done: make(chan struct{}),
		out: &output{limit: max(limit, minHeld), total: &m.total, maxTotal: m.cfg.TotalOutput},
	}
}

// credential returns the credentials for running a child as a user, or nil for none.
func (m *Manager) credential(u *account.User) (*syscall.Credential, error) {
	if u == nil {
		return nil, nil
	}
	if m.privileged {
		return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}, nil
	}
	if int(u.UID) != os.Getuid() {
		return nil, bothy.Errorf(bothy.CodePermission, "commands cannot run as user %q here", u.Name)
	}
	return nil, nil
}

// reapDelay is how long the reaper lets new commands run before it waits for them, in a separate
// thread. Most commands end before that, which the end of their output shows.
const reapDelay = 10 * time.Millisecond

func (m *Manager) startReaping() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.soon = nil
	m.startReapingLocked()
}

func (m *Manager) startReapingLocked() {
	if !m.reaping {
		m.reaping = true
		go m.reap()
	}
}

// await reaps a command whose outputs have ended, unless the reaper is waiting for it or another
// command is awaited.
func (m *Manager) await(p *Process) {
	m.mu.Lock()
	skip := !m.rows || m.awaited
	m.awaited = m.awaited || !skip
	m.mu.Unlock()
	if skip {
		return
	}
	// It has almost certainly ended. If not, it may run for long.
	if !m.collectNow(p.pid) {
		if _, err := peek(unix.P_PID, p.pid, 0); err == nil {
			m.collectNow(p.pid)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.awaited = false
}

// collectNow reaps a child if it has ended.
func (m *Manager) collectNow(pid int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running[pid] == nil {
		return true // something else did
	}
	m.collect(pid)
	return m.running[pid] == nil
}

// rest stops the reaper that is about to start, if there is no process to wait for.
func (m *Manager) rest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.soon == nil || len(m.running) > 0 {
		return
	}
	if _, err := peek(unix.P_ALL, 0, unix.WNOHANG); err != nil {
		m.soon.Stop()
		m.soon = nil
	}
}

// lookOften and lookSeldom are how soon a polling reaper polls again, after a child has ended
// and after a while in which none has. After quietLooks polls without success it blocks.
const (
	lookOften  = 10 * time.Millisecond
	lookSeldom = 50 * time.Millisecond
	quietLooks = 20
)

// reap collects children until there are none. In gVisor it polls: a thread that blocks
// in wait keeps all others from running until the Go runtime notices, which takes as
// long as a command. Most children are collected when their outputs end, by await. When
// nothing has ended for a while it blocks after all, since polling would keep an idle
// sandbox awake.
func (m *Manager) reap() {
	for pause := lookOften; ; {
		options := 0
		m.mu.Lock()
		if m.polls && m.vain <= quietLooks {
			options = unix.WNOHANG
		}
		m.mu.Unlock()
		pid, err := peek(unix.P_ALL, 0, options)
		m.mu.Lock()
		if err == nil && pid != 0 {
			m.collect(pid)
			m.vain, pause = 0, lookOften
		} else if err != nil && len(m.running) == 0 { // else one was forked just after the peek
			m.reaping, m.vain = false, 0
			m.mu.Unlock()
			return
		} else {
			m.vain++
		}
		m.mu.Unlock()
		if err == nil && pid == 0 {
			time.Sleep(pause)
			pause = min(2*pause, lookSeldom)
		}
	}
}

// peek waits for a child to end, without reaping it. With unix.WNOHANG it does
// not wait, and returns 0 if none has ended.
func peek(kind, id, options int) (int, error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(kind, id, &info, unix.WEXITED|unix.WNOWAIT|options, nil)
		if err != unix.EINTR {
			return siginfoPID(&info), err
		}
	}
}

// collect reaps one child. The caller holds m.mu.
func (m *Manager) collect(pid int) {
	var status unix.WaitStatus
	// A child whose exec failed is reaped where it was forked.
	if got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err != nil || got != pid {
		return
	}
	if p := m.running[pid]; p != nil {
		delete(m.running, pid)
		p.exited(status)
		m.remember(p)
	}
}

// remember keeps an ended process, and forgets the oldest beyond the bounds.
// The caller holds m.mu.
func (m *Manager) remember(p *Process) {
	m.ended = append(m.ended, p)
	held := int64(0)
	for i := len(m.ended) - 1; i >= 0; i-- {
		start, end := m.ended[i].out.bounds()
		held += end - start
		tooMany := len(m.ended)-i > m.cfg.Ended
		if tooMany || (held > m.cfg.EndedOutput && i < len(m.ended)-1) {
			m.dropUpTo(i)
			return
		}
	}
}

// dropUpTo forgets the oldest ended processes, up to m.ended[i], except those
// that still have readers or pending output.
func (m *Manager) dropUpTo(i int) {
	kept := m.ended[:0]
	for n, p := range m.ended {
		if n > i || p.busy() {
			kept = append(kept, p)
		} else {
			p.out.drop()
		}
	}
	clear(m.ended[len(kept):])
	m.ended = kept
}

// ForgetEnded forgets the ended commands without a reader.
func (m *Manager) ForgetEnded() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropUpTo(len(m.ended) - 1)
}

// forget drops an ended process whose pid has been reused. The caller holds m.mu.
func (m *Manager) forget(pid int) {
	m.ended = slices.DeleteFunc(m.ended, func(p *Process) bool { return p.pid == pid })
}

// Find returns the process with a pid, running or remembered, or nil.
func (m *Manager) Find(pid int) *Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.running[pid]; p != nil {
		return p
	}
	for _, p := range m.ended {
		if p.pid == pid {
			return p
		}
	}
	return nil
}

// FindTag returns the newest process with a tag, a running one first, or nil.
func (m *Manager) FindTag(tag string) *Process {
	var found *Process
	for _, p := range m.List(true) {
		if p.spec.Tag == tag && (found == nil || p.Running() || !found.Running()) {
			found = p
		}
	}
	return found
}

// List returns the running processes, and with all also the remembered ones, in the order in
// which they were started.
func (m *Manager) List(all bool) []*Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*Process
	if all {
		list = append(list, m.ended...)
	}
	for _, p := range m.running {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *Process) int { return a.started.Compare(b.started) })
	return list
}

// Working returns how many requested commands are running. Terminals are not counted: a terminal
// is busy while a client is connected to it, which is not known here.
func (m *Manager) Working() int {
	return m.count(func(s Spec) bool { return !s.Internal && s.Terminal == nil })
}

// Internal counts the commands that the agent runs for itself.
func (m *Manager) Internal() int { return m.count(func(s Spec) bool { return s.Internal }) }

func (m *Manager) count(which func(Spec) bool) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.running {
		if which(p.spec) {
			n++
		}
	}
	return n
}

// Close kills all commands with all that they started. No more can be started.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	for _, p := range m.List(false) {
		p.Kill()
	}
}
