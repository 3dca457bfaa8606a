package entry

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// Process 1 kills the largest process at the memory limit. If hundreds of processes compete for
// processor and memory, it would come too late, so over the limit all other processes are
// stopped until enough of them have died.
const (
	// holdAtMost is the longest stop after each kill: there may be no process
	// to kill.
	holdAtMost = 2 * time.Second
	// holdPause is how long the others may run if stopping them freed nothing, unless they take
	// more memory.
	holdPause = 200 * time.Millisecond
	// holdLook is how often stopped processes check for memory.
	holdLook = 5 * time.Millisecond
	// freePause is how often this process returns unneeded memory while little is left.
	freePause = time.Second
	// fastest is how quickly memory is expected to fill, in bytes per second.
	fastest = 4 << 30
	nearest = 2 * time.Millisecond
	longest = 250 * time.Millisecond
	// calm is how long a check may be delayed while memory use does not change. An
	// allocation beyond what is available ends the delay; only memory that was allocated
	// before and is touched late can fill up unnoticed.
	calm = time.Second
	// little is by how many bytes memory use may change and still count as unchanged.
	little = 256 << 10
	// The watch ends, to cost nothing, after idleLooks checks of a sandbox in which nothing was
	// started and only process 1 lives.
	idleLooks = 20
	// refusalPause is the delay of a refused start. A thousand processes that
	// retry constantly would leave process 1 no time to end them.
	refusalPause = 50 * time.Millisecond
	memoryWait   = 5 * time.Second
	// lateAtMost is how long an allocation beyond all limits waits until the watch has noticed
	// it, and lateLook how often it checks. On a crowded host the watch may get no processor for
	// longer than a program takes to fill what is left.
	lateAtMost = 2 * time.Second
	lateLook   = time.Millisecond
)

// memory watches the memory of this sentry's only sandbox.
var memory = watch{chosen: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}

type watch struct {
	mu     sync.Mutex
	starts uint64
	kernel atomic.Pointer[kernel.Kernel] // nil while the watch is off
	chosen chan struct{}                 // receives process 1's kills
	hurry  chan struct{}                 // ends a pause between two checks

	// unseen is how much may be allocated until memory use is checked.
	unseen atomic.Int64
	// most is how much may be in use before further allocations wait for the
	// watch.
	most atomic.Int64
	// holding says that all processes are stopped, or about to be.
	holding atomic.Bool
}

// watchGiving notifies the watch before memory is allocated. A program can take much
// between two checks, especially if the watch gets little CPU time.
func watchGiving() {
	onAllocate(func(f *pgalloc.MemoryFile, bytes uint64) {
		if k := memory.kernel.Load(); k != nil && f == k.MemoryFile() {
			memory.giving(int64(bytes), func() int64 { return memoryUsed(k) })
		}
	})
}

// giving waits, for a while, if more memory is in use than allowed and the watch has not noticed
// yet.
func (w *watch) giving(bytes int64, used func() int64) {
	if w.unseen.Add(-bytes) > 0 {
		return
	}
	for waited := time.Duration(0); waited < lateAtMost; waited += lateLook {
		left := w.most.Load() - used()
		w.unseen.Store(left)
		if left > 0 || w.holding.Load() {
			return
		}
		notify(w.hurry)
		time.Sleep(lateLook)
	}
}

// started is called before each process or thread starts. It starts the watch unless it runs.
func (w *watch) started(k *kernel.Kernel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starts++
	if w.kernel.Load() == nil {
		w.most.Store(memoryMost())
		w.kernel.Store(k)
		go w.run(k)
	}
}

// killed is called when process 1 has killed a process.
func (w *watch) killed() { notify(w.chosen) }

// notify sends a notification without waiting for it to be handled.
func notify(word chan<- struct{}) {
	select {
	case word <- struct{}{}:
	default:
	}
}

func (w *watch) run(k *kernel.Kernel) {
	idle, starts := 0, uint64(0)
	var freed time.Time
	for last, pause := int64(0), time.Duration(0); ; {
		left := memoryLeft(k)
		if left <= 0 || left <= grace() && time.Since(freed) > freePause {
			w.hold(k)
			freed = time.Now()
			if left = memoryLeft(k); left <= 0 {
				w.letOthersRun(k)
				continue
			}
		}
		pause = nextCheck(pause, left, last)
		last = left
		select {
		case <-w.hurry:
			pause = 0
		case <-time.After(pause):
		}
		w.mu.Lock()
		if starts != w.starts {
			pause = 0
		}
		if starts != w.starts || !alone(k) {
			idle, starts = 0, w.starts
		} else if idle++; idle > idleLooks {
			w.kernel.Store(nil)
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// nextCheck returns how long the next check may wait, after a pause, given how much memory is left
// and was left at the last check: less than it takes to fill that, and longer each time while
// little changes.
func nextCheck(pause time.Duration, left, before int64) time.Duration {
	soon := min(max(time.Duration(float64(left)/fastest*float64(time.Second)), nearest), longest)
	if change := left - before; !notifiesAllocations || change < -little || change > little {
		return soon
	}
	return max(soon, min(2*pause, calm))
}

// hold stops all processes except process 1 until there is memory again, which
// this process frees, or process 1 by killing. Only killed processes continue,
// so that they end. Such stops are not part of snapshots, so a restored sandbox
// is not held.
func (w *watch) hold(k *kernel.Kernel) {
	held := slices.DeleteFunc(others(k), dies)
	for _, t := range held {
		t.BeginExternalStop()
	}
	w.holding.Store(true)
	defer w.holding.Store(false)
	defer func() {
		for _, t := range held {
			t.EndExternalStop()
		}
	}()
	// Memory freed inside, such as that of pipes, is still held by this process.
	debug.FreeOSMemory()
	if memoryLeft(k) > 0 {
		return
	}
	look := time.NewTicker(holdLook)
	defer look.Stop()
	enough := time.NewTimer(holdAtMost)
	defer enough.Stop()
	for {
		select {
		case <-w.chosen:
			enough.Reset(holdAtMost)
		case <-look.C:
		case <-enough.C:
			return
		}
		held = slices.DeleteFunc(held, func(t *kernel.Task) bool {
			if !dies(t) {
				return false
			}
			t.EndExternalStop()
			return true
		})
		if memoryLeft(k) > grace() {
			return
		}
	}
}

// letOthersRun lets the others run for a moment after stopping them freed nothing: process 1 may wait
// for one of them.
func (w *watch) letOthersRun(k *kernel.Kernel) {
	used := memoryUsed(k)
	w.most.Store(used + grace())
	defer w.most.Store(memoryMost())
	for end := time.Now().Add(holdPause); time.Now().Before(end) && memoryUsed(k)-used < grace(); {
		time.Sleep(nearest)
	}
}

// dies reports whether the task has been killed or has begun to exit.
func dies(t *kernel.Task) bool {
	return t.Killed() || t.ExitState() != kernel.TaskExitNone
}

// alone reports whether only process 1 lives.
func alone(k *kernel.Kernel) bool {
	root := k.RootPIDNamespace()
	one := root.ThreadGroupWithID(1)
	return one == nil || root.NumTasks() <= one.Count()
}

// others returns all tasks except those of process 1, and of the child that has its memory until
// it runs a program: process 1 waits for that.
func others(k *kernel.Kernel) []*kernel.Task {
	root := k.RootPIDNamespace()
	var first *mm.MemoryManager
	if one := root.ThreadGroupWithID(1); one != nil {
		first = memoryOf(one.Leader())
	}
	return slices.DeleteFunc(root.Tasks(), func(t *kernel.Task) bool {
		return isProcessOne(t) || first != nil && memoryOf(t) == first
	})
}

func memoryOf(t *kernel.Task) (m *mm.MemoryManager) {
	t.WithMuLocked(func(t *kernel.Task) { m = t.MemoryManager() })
	return m
}

// hasMemory delays the start of a process while there is no memory, which process 1 is about
// to free.
func hasMemory(t *kernel.Task) error {
	for waited := time.Duration(0); memoryLeft(t.Kernel()) <= 0; waited += refusalPause {
		if waited >= memoryWait {
			return linuxerr.ENOMEM
		}
		if !rest(t) {
			return linuxerr.ERESTARTNOINTR
		}
	}
	return nil
}

// rest reports whether the task slept for the whole time: a signal wakes it.
func rest(t *kernel.Task) bool {
	_, err := t.BlockWithTimeout(nil, true, refusalPause)
	return linuxerr.Equals(linuxerr.ETIMEDOUT, err)
}

// memoryLeft is how much may still be used, including the grace beyond the limit.
func memoryLeft(k *kernel.Kernel) int64 {
	return memoryMost() - memoryUsed(k)
}

// memoryMost is the limit and the grace beyond it.
func memoryMost() int64 {
	limit := int64(usage.MaximumTotalMemoryBytes)
	if limit == 0 {
		return 1 << 62
	}
	return limit + grace()
}

// grace is how far beyond the limit all processes are stopped: at the limit itself the server
// makes process 1 kill a process.
func grace() int64 { return int64(usage.MaximumTotalMemoryBytes) / 16 }

// memoryUsed is roughly what the host counts against the sandbox: the memory of
// its processes and of this one.
func memoryUsed(k *kernel.Kernel) int64 {
	used, err := k.MemoryFile().TotalUsage()
	if err != nil {
		return 0
	}
	return int64(used) + memoryOfRuntime()
}
