package command

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/procfs"
)

// maxRounds bounds how often a growing tree is examined again.
const maxRounds = 64

// kernelThreads is the parent of all threads of the kernel in a virtual machine.
const kernelThreads = 2

// Signal sends a signal to the command's process group. SIGKILL goes to everything that the
// command started. For an ended command, the error is CodeProcessNotFound.
func (p *Process) Signal(sig syscall.Signal) error {
	if sig < 1 || sig > 64 {
		return notASignal(sig)
	}
	if sig == syscall.SIGKILL {
		if !p.Running() {
			return p.endedError()
		}
		p.Kill()
		return nil
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.m.running[p.pid] != p {
		return p.endedError()
	}
	if err := syscall.Kill(-p.pid, sig); err != nil {
		return fmt.Errorf("signal process group %d: %w", p.pid, err)
	}
	return nil
}

func (p *Process) endedError() error {
	return bothy.Errorf(bothy.CodeProcessNotFound, "process %d has ended", p.pid)
}

// Kill ends the command and everything it started, including processes that
// have left its process group or session. Killing an ended command does
// nothing.
//
// A tree that forks while it is killed would escape, so it is stopped first,
// until no new member appears, and then killed.
func (p *Process) Kill() {
	m := p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running[p.pid] != p {
		return
	}
	// The common case comes first, also because a fork bomb leaves little time for anything
	// else; the rest is caught below.
	_ = syscall.Kill(-p.pid, syscall.SIGSTOP)
	stopped := map[int]bool{}
	for range maxRounds {
		grown := false
		for _, pid := range p.tree() {
			if !stopped[pid] {
				stopped[pid] = true
				grown = true
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		if !grown {
			break
		}
	}
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	for pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// KillSince ends what the command has started since a time on procfs's clock, but neither the
// command itself nor what it started before.
func (p *Process) KillSince(ticks int64) {
	m := p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running[p.pid] != p {
		return
	}
	killed := map[int]bool{}
	for range maxRounds { // a tree that forks meanwhile gets new members
		grown := false
		for _, x := range p.members() {
			if x.PID == p.pid || x.StartTicks < ticks || killed[x.PID] {
				continue
			}
			killed[x.PID], grown = true, true
			_ = syscall.Kill(x.PID, syscall.SIGKILL)
		}
		if !grown {
			return
		}
	}
}

// tree lists the living processes that belong to the command. The caller holds
// m.mu.
func (p *Process) tree() []int {
	pids := []int{p.pid}
	for _, x := range p.members() {
		if x.PID != p.pid {
			pids = append(pids, x.PID)
		}
	}
	return pids
}

// SignalOther sends a signal to a process that is not one of the manager's commands.
func (m *Manager) SignalOther(pid int, sig syscall.Signal) error {
	switch {
	case sig < 1 || sig > 64:
		return notASignal(sig)
	case protected(pid):
		return bothy.Errorf(bothy.CodeInvalid, "process %d is what the sandbox runs on", pid).WithHint("Terminate the sandbox to end it.")
	}
	if err := syscall.Kill(pid, sig); err == syscall.ESRCH {
		return bothy.Errorf(bothy.CodeProcessNotFound, "there is no process %d", pid).WithHint("List all processes to see those that run.")
	} else if err != nil {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}

func notASignal(sig syscall.Signal) error {
	return bothy.Errorf(bothy.CodeInvalid, "%d is not a signal", int(sig)).
		WithHint("Signals are numbers from 1 to 64, such as 2 (INT), 9 (KILL) or 15 (TERM).")
}

// members selects the processes that tree lists from the process table. The caller holds m.mu.
func (p *Process) members() []procfs.Process {
	all, err := procfs.All()
	if err != nil {
		return nil
	}
	owner := p.m.owners(all)
	return slices.DeleteFunc(all, func(x procfs.Process) bool { return owner[x.PID] != p || x.Dead() })
}

// owners finds the command that each process belongs to: by its ancestors, its
// session, its process group, or the variable that it was started with. The
// caller holds m.mu.
func (m *Manager) owners(all []procfs.Process) map[int]*Process {
	table := make(map[int]procfs.Process, len(all))
	for _, x := range all {
		table[x.PID] = x
	}
	byID := make(map[string]*Process, len(m.running))
	for _, p := range m.running {
		byID[p.id] = p
	}
	owner := make(map[int]*Process)
	for _, x := range all {
		if protected(x.PID) {
			continue
		}
		if p := m.ownerByAncestry(x, table); p != nil {
			owner[x.PID] = p
		} else if p := byID[procfs.Env(x.PID, marker)]; p != nil {
			owner[x.PID] = p
		}
	}
	return owner
}

// Table lists the running processes, except the agent, its runtime, and kernel threads.
func (m *Manager) Table() ([]procfs.Process, error) {
	all, err := procfs.All()
	return slices.DeleteFunc(all, func(p procfs.Process) bool {
		return protected(p.PID) || p.Dead() || p.PID == kernelThreads || p.PPID == kernelThreads && procfs.Command(p.PID) == nil
	}), err
}

func protected(pid int) bool { return pid <= 1 || pid == os.Getpid() }

func (m *Manager) ownerByAncestry(x procfs.Process, table map[int]procfs.Process) *Process {
	for range len(table) { // bounded: a table read while it changes may contain a cycle
		for _, id := range [...]int{x.PID, x.SID, x.PGID} {
			if p := m.running[id]; p != nil {
				return p
			}
		}
		next, ok := table[x.PPID]
		if !ok || protected(next.PID) {
			return nil
		}
		x = next
	}
	return nil
}

// Victim is a process that was killed to free memory.
type Victim struct {
	procfs.Process
	// Command is the command it belonged to, or nil.
	Command *Process
	// Crowd is how many processes were killed with it, itself included, and
	// HeldBytes the memory that all of them held.
	Crowd     int
	HeldBytes int64
}

// crowd is how many processes of one group share its memory before they count as one. Killing a
// fork bomb process by process takes too long.
const crowd = 8

// KillLargest kills the process that uses the most memory, except the agent, and marks its
// command. If it belongs to a large group, the whole process group is killed. It returns false
// if there is none.
func (m *Manager) KillLargest(limit int64) (Victim, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok, err := m.largest()
	if err != nil || !ok {
		return v, false, err
	}
	if v.Command != nil {
		v.Command.mark(func(e *Exit) {
			e.OOMKilled = true
			e.Hint = oomHint(v, limit)
		})
	}
	if v.Crowd > 1 {
		return v, true, syscall.Kill(-v.PGID, syscall.SIGKILL)
	}
	return v, true, syscall.Kill(v.PID, syscall.SIGKILL)
}

// largest finds the process to kill. The caller holds m.mu.
func (m *Manager) largest() (v Victim, ok bool, err error) {
	all, err := procfs.All()
	if err != nil {
		return v, false, err
	}
	owner := m.owners(all)
	members, held := map[int]int{}, map[int]int64{} // by process group
	for _, x := range all {
		// Outside a sandbox, other users' processes are not ours to kill.
		ours := os.Getpid() == 1 || owner[x.PID] != nil
		if !ours || protected(x.PID) || protected(x.PGID) || x.Dead() {
			continue
		}
		members[x.PGID]++
		held[x.PGID] += x.RSSBytes
		if x.RSSBytes > v.RSSBytes {
			v.Process, v.Command = x, owner[x.PID]
		}
	}
	v.Crowd, v.HeldBytes = 1, v.RSSBytes
	if n := members[v.PGID]; n >= crowd && v.RSSBytes < held[v.PGID]/(crowd/2) {
		v.Crowd, v.HeldBytes = n, held[v.PGID]
	}
	return v, v.PID != 0, nil
}

func oomHint(v Victim, limit int64) string {
	mb := limit >> 20
	who := fmt.Sprintf("%q, which held %d MB, was", v.Name, v.RSSBytes>>20)
	if v.Crowd > 1 {
		who = fmt.Sprintf("%d processes, %q among them, were", v.Crowd, v.Name)
	}
	return fmt.Sprintf("The sandbox reached its memory limit of %d MB, and %s killed. "+
		"Create the sandbox with more, such as memory_mb=%d, or use less.",
		mb, who, min(max(2*mb, bothy.MinMemoryMB), bothy.MaxMemoryMB))
}
