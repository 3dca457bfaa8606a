package gvisor

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/engine/cgroup"
)

// fewCPUs is the largest number of processors with which a boot affinity saves time. With
// more, the host's scheduler finds an idle one quickly.
const fewCPUs = 2

// bootAffinity pins a sentry and all that it starts to one processor while it boots. Until
// process 1 serves, the kernel and process 1 take turns. On a host with few processors (see
// fewCPUs) each turn would put a thread to sleep and wake another one on a different
// processor, which takes longer and finds its caches empty. Pinning saves a tenth of the
// boot and of the first command. Programs run in parallel and a command answers sooner on
// several processors, so the affinity is released soon after process 1 listens. A nil
// bootAffinity is already released.
type bootAffinity struct {
	cpus unix.CPUSet
	over func()
}

// enter pins the calling thread, and whatever it starts. If the processor has been taken away
// meanwhile, the thread keeps those it has, and is only slower.
func (b *bootAffinity) enter() {
	if b != nil {
		_ = unix.SchedSetaffinity(0, &b.cpus)
	}
}

// firstCommand is how long the affinity is kept after process 1 listens, for the first command.
const firstCommand = 200 * time.Millisecond

// releaseSoon releases the affinity after the first command has had time to run.
func (b *bootAffinity) releaseSoon() {
	if b != nil {
		time.AfterFunc(firstCommand, b.over)
	}
}

// release lets all threads and processes of the sentry use every processor.
func (b *bootAffinity) release() {
	if b != nil {
		b.over()
	}
}

// cpuSlots counts the sentries that boot on each processor of this process.
type cpuSlots struct {
	mu  sync.Mutex
	all unix.CPUSet
	on  map[int]int // nil until everything is known; empty if pinning saves nothing here
}

var bootCPUs cpuSlots

// reserve pins the future threads of a group to the processor on which the fewest sentries
// boot. It returns nil if they may use all processors from the start.
func (b *cpuSlots) reserve(group *cgroup.Group) *bootAffinity {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.pins() {
		return nil
	}
	least := -1
	for cpu, n := range b.on {
		if least < 0 || n < b.on[least] {
			least = cpu
		}
	}
	b.on[least]++
	one := &bootAffinity{over: sync.OnceFunc(func() {
		b.mu.Lock()
		b.on[least]--
		b.mu.Unlock()
		spread(group, &b.all)
	})}
	one.cpus.Set(least)
	return one
}

// pins reports whether booting machines are pinned here. b.mu is held.
func (b *cpuSlots) pins() bool {
	if b.on == nil {
		b.on = map[int]int{}
		if unix.SchedGetaffinity(0, &b.all) == nil && 1 < b.all.Count() && b.all.Count() <= fewCPUs {
			for cpu := range len(b.all) * 64 {
				if b.all.IsSet(cpu) {
					b.on[cpu] = 0
				}
			}
		}
	}
	return len(b.on) > 0
}

// releaseFound lets a machine that was found again use every processor: the server that started
// it may have ended before doing so.
func (b *cpuSlots) releaseFound(group *cgroup.Group) {
	b.mu.Lock()
	pinned, all := b.pins(), b.all
	b.mu.Unlock()
	if pinned {
		spread(group, &all)
	}
}

// spread lets all threads of a group use the given processors. A thread started meanwhile
// inherits its parent's affinity, so spread repeats until it finds no new thread.
func spread(group *cgroup.Group, cpus *unix.CPUSet) {
	done := map[int]bool{}
	for {
		threads, err := group.Threads()
		if err != nil {
			return // the machine has ended
		}
		fresh := false
		for _, id := range threads {
			if !done[id] {
				done[id], fresh = true, true
				_ = unix.SchedSetaffinity(id, cpus) // it may have ended
			}
		}
		if !fresh {
			return
		}
	}
}
