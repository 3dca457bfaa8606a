// Package cgroup puts machines under hard limits on CPU, memory and host processes, on hosts
// with cgroup v2, v1, or the hybrid of both. Engines use it.
package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/engine/process"
	"github.com/bothy-dev/bothy/engine/sysfile"
)

// Limits says how much a group may use. Zero means no limit.
type Limits struct {
	CPU         float64
	MemoryBytes int64
	PIDs        int
}

// Parent is the place under which the groups of one server live.
type Parent struct {
	name string
	v2   string            // folder of the parent in the unified hierarchy
	v1   map[string]string // controller -> folder of the parent
	all  []string          // the parent's folders, one per hierarchy
}

// cpuPeriod is the length of one accounting period.
const cpuPeriod = 100 * time.Millisecond

// NewParent finds the host's cgroup hierarchy and makes the folder name in it.
func NewParent(name string) (*Parent, error) {
	mounts, err := mounts()
	if err != nil {
		return nil, err
	}
	p := &Parent{name: name}
	if root := mounts[unified]; root != "" && hasControllers(root, "cpu", "memory", "pids") {
		return p, p.makeV2(root)
	}
	p.v1 = map[string]string{}
	for _, c := range []string{"cpu", "cpuacct", "memory", "pids", "freezer"} {
		root := mounts[c]
		if root == "" {
			if c == "cpu" || c == "memory" {
				return nil, fmt.Errorf("the host has no cgroup controller %q: mount cgroup2 at /sys/fs/cgroup, or the v1 controller", c)
			}
			continue
		}
		p.v1[c] = filepath.Join(root, name)
		if err := os.MkdirAll(p.v1[c], 0o755); err != nil {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
	}
	seen := map[string]bool{}
	for _, dir := range p.v1 {
		// cpu and cpuacct are often one hierarchy under two names.
		real, err := filepath.EvalSymlinks(dir)
		if err == nil && !seen[real] {
			seen[real] = true
			p.all = append(p.all, dir)
		}
	}
	return p, nil
}

// Parents finds the parents whose names begin with a prefix, of all servers.
func Parents(prefix string) ([]*Parent, error) {
	mounts, err := mounts()
	if err != nil {
		return nil, err
	}
	root := mounts["memory"]
	if u := mounts[unified]; u != "" && hasControllers(u, "cpu", "memory", "pids") {
		root = u
	}
	if root == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var found []*Parent
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		p, err := NewParent(e.Name())
		if err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	return found, nil
}

func (p *Parent) makeV2(root string) error {
	p.v2 = filepath.Join(root, p.name)
	p.all = []string{p.v2}
	if err := os.MkdirAll(p.v2, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	for _, dir := range []string{root, p.v2} {
		f := filepath.Join(dir, "cgroup.subtree_control")
		if err := sysfile.Write(f, "+cpu +memory +pids"); err != nil {
			return fmt.Errorf("enable cgroup controllers in %s: %w", dir, err)
		}
	}
	return nil
}

const unified = "cgroup2"

// mounts maps each v1 controller, and unified, to its mount point.
func mounts() (map[string]string, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := map[string]string{}
	s := bufio.NewScanner(f)
	for s.Scan() {
		w := strings.Fields(s.Text())
		if len(w) < 4 {
			continue
		}
		switch w[2] {
		case "cgroup2":
			if found[unified] == "" {
				found[unified] = w[1]
			}
		case "cgroup":
			for _, o := range strings.Split(w[3], ",") {
				if found[o] == "" {
					found[o] = w[1]
				}
			}
		}
	}
	return found, s.Err()
}

func hasControllers(root string, want ...string) bool {
	b, err := sysfile.Read(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return false
	}
	have := " " + strings.TrimSpace(b) + " "
	for _, w := range want {
		if !strings.Contains(have, " "+w+" ") {
			return false
		}
	}
	return true
}

// Version returns 1 or 2.
func (p *Parent) Version() int {
	if p.v2 != "" {
		return 2
	}
	return 1
}

// List names the groups that exist.
func (p *Parent) List() ([]string, error) {
	names := map[string]bool{}
	for _, d := range p.all {
		entries, err := os.ReadDir(d)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				names[e.Name()] = true
			}
		}
	}
	var out []string
	for n := range names {
		out = append(out, n)
	}
	return out, nil
}

// Remove removes the parent itself, if it has no groups left.
func (p *Parent) Remove() error {
	var errs []error
	for _, d := range p.all {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Group is one machine's group.
type Group struct {
	p    *Parent
	name string

	mu     sync.Mutex
	thawed chan struct{} // closed when a frozen group is thawed, else nil
}

// Open returns the group of that name, whether or not it exists yet.
func (p *Parent) Open(name string) *Group { return &Group{p: p, name: name} }

// Create makes a group with limits.
func (p *Parent) Create(name string, l Limits) (*Group, error) {
	g := p.Open(name)
	for _, d := range p.all {
		if err := os.Mkdir(filepath.Join(d, name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			g.Remove()
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
	}
	if err := g.SetLimits(l); err != nil {
		g.Remove()
		return nil, err
	}
	return g, nil
}

func (g *Group) dir(controller string) string {
	if g.p.v2 != "" {
		return filepath.Join(g.p.v2, g.name)
	}
	if d := g.p.v1[controller]; d != "" {
		return filepath.Join(d, g.name)
	}
	return ""
}

func (g *Group) write(controller, file, value string) error {
	d := g.dir(controller)
	if d == "" {
		return nil
	}
	if err := sysfile.Write(filepath.Join(d, file), value); err != nil {
		return fmt.Errorf("set cgroup %s: %w", file, err)
	}
	return nil
}

func (g *Group) read(controller, file string) (string, error) {
	text, err := sysfile.Read(filepath.Join(g.dir(controller), file))
	return strings.TrimSpace(text), err
}

// SetLimits changes the limits; they apply immediately.
func (g *Group) SetLimits(l Limits) error {
	if g.p.v2 != "" {
		return g.setV2(l)
	}
	return g.setV1(l)
}

func (g *Group) setV2(l Limits) error {
	cpu, mem, pids := "max", "max", "max"
	period := cpuPeriod.Microseconds()
	if l.CPU > 0 {
		cpu = strconv.FormatInt(int64(l.CPU*float64(period)), 10)
	}
	if l.MemoryBytes > 0 {
		mem = strconv.FormatInt(l.MemoryBytes, 10)
	}
	if l.PIDs > 0 {
		pids = strconv.Itoa(l.PIDs)
	}
	return errors.Join(
		g.write("", "cpu.max", fmt.Sprintf("%s %d", cpu, period)),
		g.write("", "memory.max", mem),
		g.write("", "pids.max", pids),
	)
}

func (g *Group) setV1(l Limits) error {
	quota, mem, pids := int64(-1), int64(-1), "max"
	if l.CPU > 0 {
		quota = int64(l.CPU * float64(cpuPeriod.Microseconds()))
	}
	if l.MemoryBytes > 0 {
		mem = l.MemoryBytes
	}
	if l.PIDs > 0 {
		pids = strconv.Itoa(l.PIDs)
	}
	return errors.Join(
		g.write("cpu", "cpu.cfs_period_us", strconv.FormatInt(cpuPeriod.Microseconds(), 10)),
		g.write("cpu", "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)),
		g.write("memory", "memory.limit_in_bytes", strconv.FormatInt(mem, 10)),
		g.write("pids", "pids.max", pids),
	)
}

// Add moves a process and all its descendants into the group, except those already in it. With
// v2, starting the process there (see FD) is better: it is then never outside the group.
func (g *Group) Add(pid int) error {
	in, err := g.Processes()
	if err != nil {
		return err
	}
	moved := map[int]bool{}
	for _, p := range in {
		moved[p] = true
	}
	for {
		tree := descendants(pid)
		news := 0
		for _, p := range tree {
			if moved[p] {
				continue
			}
			moved[p] = true
			news++
			if err := g.addOne(p); err != nil {
				return err
			}
		}
		// A child that was started before its parent moved is found next time.
		if news == 0 {
			return nil
		}
	}
}

func (g *Group) addOne(pid int) error {
	for _, d := range g.p.all {
		err := sysfile.Write(filepath.Join(d, g.name, "cgroup.procs"), strconv.Itoa(pid))
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("move process %d into cgroup: %w", pid, err)
		}
	}
	return nil
}

// descendants lists a process and all below it.
func descendants(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children(all[i])...)
	}
	return all
}

// children lists the child processes of a process's threads.
func children(pid int) (found []int) {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	dir, err := os.Open(tasks)
	if err != nil {
		return nil
	}
	defer dir.Close()
	threads, _ := dir.Readdirnames(-1)
	for _, t := range threads {
		text, _ := sysfile.Read(tasks + "/" + t + "/children")
		found = append(found, numbers(text)...)
	}
	return found
}

// FD opens the group's folder for CLONE_INTO_CGROUP. It is nil with v1.
func (g *Group) FD() (*os.File, error) {
	if g.p.v2 == "" {
		return nil, nil
	}
	return os.Open(g.dir(""))
}

// Enter moves the calling thread, and so what it starts, into the group. Unlike
// moving another process, this blocks nothing. The thread must be locked to its
// goroutine, and should end soon. With v2 it does nothing; see FD.
func (g *Group) Enter() error {
	if g.p.v2 != "" {
		return nil
	}
	for _, d := range g.p.all {
		if err := sysfile.Write(filepath.Join(d, g.name, "tasks"), "0"); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

// MemoryUsed is the memory that cannot be taken back without killing: anonymous
// and shared pages, in bytes.
func (g *Group) MemoryUsed() (int64, error) {
	if g.p.v2 == "" {
		return g.memory("rss", "shmem")
	}
	return g.memory("anon", "shmem")
}

// SharedMemory is the part of it that is in shared pages, such as files in memory, in bytes.
func (g *Group) SharedMemory() (int64, error) { return g.memory("shmem") }

// memory adds up the kernel's counters with these names.
func (g *Group) memory(names ...string) (int64, error) {
	b, err := g.read("memory", "memory.stat")
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, line := range strings.Split(b, "\n") {
		k, v, _ := strings.Cut(line, " ")
		if slices.Contains(names, k) {
			n, _ := strconv.ParseInt(v, 10, 64)
			sum += n
		}
	}
	return sum, nil
}

// CPUSeconds is the CPU time used so far.
func (g *Group) CPUSeconds() (float64, error) {
	if g.p.v2 == "" {
		s, err := g.read("cpuacct", "cpuacct.usage")
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(s, 10, 64)
		return float64(n) / 1e9, err
	}
	s, err := g.read("", "cpu.stat")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(s, "\n") {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(v, 10, 64)
			return float64(n) / 1e6, err
		}
	}
	return 0, errors.New("cpu.stat has no usage_usec")
}

// OOMKills counts the processes that the kernel killed at the memory ceiling.
func (g *Group) OOMKills() int {
	file, key := "memory.events", "oom_kill "
	if g.p.v2 == "" {
		file = "memory.oom_control"
	}
	s, err := g.read("memory", file)
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(s, "\n") {
		if v, ok := strings.CutPrefix(line, key); ok {
			n, _ := strconv.Atoi(v)
			return n
		}
	}
	return 0
}

// SetFrozen stops or thaws all processes of the group, and returns when that is done. While this
// Group keeps them stopped, it watches no memory.
func (g *Group) SetFrozen(frozen bool) error {
	err := g.setFrozen(frozen)
	if !frozen && isGone(err) {
		err = nil // a removed group has no processes to thaw
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case frozen && err == nil && g.thawed == nil:
		g.thawed = make(chan struct{})
	case !frozen && g.thawed != nil:
		close(g.thawed)
		g.thawed = nil
	}
	return err
}

// untilThawed waits while the group is frozen.
func (g *Group) untilThawed(ctx context.Context) {
	g.mu.Lock()
	thawed := g.thawed
	g.mu.Unlock()
	if thawed != nil {
		select {
		case <-thawed:
		case <-ctx.Done():
		}
	}
}

func (g *Group) setFrozen(frozen bool) error {
	if g.p.v2 != "" {
		v, state := "0", "frozen 0"
		if frozen {
			v, state = "1", "frozen 1"
		}
		if err := g.write("", "cgroup.freeze", v); err != nil {
			return err
		}
		return g.await("", "cgroup.events", state)
	}
	if g.dir("freezer") == "" {
		if !frozen {
			return nil
		}
		return errors.New("the host has no freezer cgroup")
	}
	state := "THAWED"
	if frozen {
		state = "FROZEN"
	}
	if err := g.write("freezer", "freezer.state", state); err != nil {
		return err
	}
	return g.await("freezer", "freezer.state", state)
}

func (g *Group) await(controller, file, want string) error {
	deadline := time.Now().Add(5 * time.Second)
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 5*time.Millisecond) {
		s, err := g.read(controller, file)
		if err != nil {
			return err
		}
		if strings.Contains(s, want) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup did not become %q within 5 s", want)
		}
		time.Sleep(wait)
	}
}

// Processes lists the process ids in the group.
func (g *Group) Processes() ([]int, error) {
	seen := map[int]bool{}
	var pids []int
	for _, d := range g.p.all {
		text, err := sysfile.Read(filepath.Join(d, g.name, "cgroup.procs"))
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, n := range numbers(text) {
			if !seen[n] {
				seen[n] = true
				pids = append(pids, n)
			}
		}
	}
	return pids, nil
}

// isGone reports whether reading a file has failed because its group was removed, before the
// file was opened or after that.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// numbers returns the numbers in a file of the host's kernel.
func numbers(text string) (found []int) {
	for _, f := range strings.Fields(text) {
		if n, err := strconv.Atoi(f); err == nil {
			found = append(found, n)
		}
	}
	return found
}

// Kill kills every process in the group.
func (g *Group) Kill() error {
	if g.p.v2 != "" && g.write("", "cgroup.kill", "1") == nil {
		return nil
	}
	held, err := hold(g.Processes)
	for _, p := range held {
		err = errors.Join(err, p.Kill(), p.Close())
	}
	return err
}

// End kills every process in the group and returns when they have ended. The group
// must not be frozen.
func (g *Group) End() error {
	for {
		held, err := hold(g.Processes)
		if err != nil || len(held) == 0 {
			return err
		}
		for _, p := range held {
			err = errors.Join(err, p.Kill())
		}
		for _, p := range held {
			if err == nil {
				p.Wait()
			}
			p.Close()
		}
		if err != nil {
			return err
		}
	}
}

// hold opens the processes of a list, except this one. A listed pid may have been reused by the
// time it is opened, so only processes that are still listed afterwards count.
func hold(list func() ([]int, error)) ([]process.Process, error) {
	pids, err := list()
	if err != nil {
		return nil, err
	}
	open := map[int]process.Process{}
	for _, pid := range pids {
		if p, err := process.Open(pid); err == nil && pid != os.Getpid() {
			open[pid] = p
		} else if err == nil {
			p.Close()
		}
	}
	if len(open) == 0 {
		return nil, nil
	}
	pids, err = list()
	var held []process.Process
	for _, pid := range pids {
		if p, ok := open[pid]; ok {
			held = append(held, p)
			delete(open, pid)
		}
	}
	for _, p := range open {
		p.Close()
	}
	return held, err
}

// Remove deletes the group. Its processes must have ended; it waits for those that are just
// exiting.
func (g *Group) Remove() error {
	var errs []error
	for _, d := range g.p.all {
		errs = append(errs, removeDir(filepath.Join(d, g.name)))
	}
	return errors.Join(errs...)
}

func removeDir(dir string) error {
	deadline := time.Now().Add(2 * time.Second)
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := unix.Rmdir(dir)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.EBUSY || time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		time.Sleep(wait)
	}
}
