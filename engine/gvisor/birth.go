package gvisor

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/engine/cgroup"
)

// fewCPUs is the number of processors up to which births gain time. With more, an idle one is
// found quickly.
const fewCPUs = 2

// A birth is the time in which a sentry, with all that it starts, has one processor. Its
// kernel and process 1 take turns until that serves, and with few processors (see
// fewCPUs) each change between them sends a thread to sleep and wakes another one: on
// another processor that takes longer, and finds its caches empty. To boot takes a tenth
// less work that way, and so does the first command. Programs may run beside each other,
// and a command answers sooner if it can, so a birth ends soon after process 1 listens.
// A nil one is over.
type birth struct {
	cpus unix.CPUSet
	over func()
}

// enter has the calling thread, and so what it starts, use the birth's processor. Where
// that was taken away it keeps those that it has: it is slower, no more.
func (b *birth) enter() {
	if b != nil {
		_ = unix.SchedSetaffinity(0, &b.cpus)
	}
}

// firstCommand is how long a birth goes on for the first command's sake.
const firstCommand = 200 * time.Millisecond

// endSoon ends the birth when there was time for a command.
func (b *birth) endSoon() {
	if b != nil {
		time.AfterFunc(firstCommand, b.over)
	}
}

// end gives the sentry all processors, and all its threads and processes with it.
func (b *birth) end() {
	if b != nil {
		b.over()
	}
}

// births are how many there are on each processor that this process may use.
type births struct {
	mu  sync.Mutex
	all unix.CPUSet
	on  map[int]int // nil until all is known, and empty where births gain nothing
}

var newborn births

// begin begins one for the threads that a group will have, on the processor with the
// fewest. It is nil where all processors are used from the start.
func (b *births) begin(group *cgroup.Group) *birth {
	b.mu.Lock()
	defer b.mu.Unlock()
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
	if len(b.on) == 0 {
		return nil
	}
	least := -1
	for cpu, n := range b.on {
		if least < 0 || n < b.on[least] {
			least = cpu
		}
	}
	b.on[least]++
	one := &birth{over: sync.OnceFunc(func() {
		b.mu.Lock()
		b.on[least]--
		b.mu.Unlock()
		spread(group, &b.all)
	})}
	one.cpus.Set(least)
	return one
}

// spread lets all threads of a group use some processors. A thread that one makes
// meanwhile has what that had: so it looks until there are no more new ones.
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
