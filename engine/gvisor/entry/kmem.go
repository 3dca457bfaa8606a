package entry

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// Empty files, pipes, sockets, watches and the like take kernel memory that belongs to no
// process, or to one that looks small: killing the largest process would not free it, and the
// sandbox would end. So programs may make the kernel use only a part of the sandbox's memory.
// Beyond that, calls that allocate fail as they do when Linux runs out of the resource; calls
// that release, and process 1, continue.
const (
	// The kernel may use one part in kmemPart of the sandbox's memory.
	kmemPart = 2
	// For sending, it may use one part in kmemSendPart more: a command must be able to report
	// what has failed.
	kmemSendPart = 8
	// kmemEvery is the number of calls between two checks, while there is room.
	kmemEvery = 64
	// kmemGrowth is by how many bytes memory in use must exceed what was live before garbage is
	// collected to see whether they are live, too.
	kmemGrowth = 16 << 20
	// Collecting takes only a part of the time: a program that is refused repeatedly waits for
	// kmemRest times as long as the last collection took, at most kmemPause.
	kmemRest  = 10
	kmemPause = 200 * time.Millisecond
	// kmemSpared is how long nothing is refused after a checkpoint was begun, or read: that
	// takes memory that the programs did not ask for, and the host allows for it.
	kmemSpared = 30 * time.Second
)

// kmem watches the kernel memory of this sentry's only sandbox.
var kmem = kernelMemory{
	used: heapUsed, collect: runtime.GC, now: time.Now, sleep: time.Sleep,
	most: func() int64 { return int64(usage.MaximumTotalMemoryBytes) / kmemPart },
}

type kernelMemory struct {
	calls atomic.Uint64
	// live is the result of the last collection, and over the threshold beyond which it is too
	// much.
	live, over atomic.Int64
	// spared is the time until which nothing is refused, in nanoseconds.
	spared atomic.Int64

	used    func() int64
	collect func()
	now     func() time.Time
	sleep   func(time.Duration)
	most    func() int64 // 0: there is no bound

	mu        sync.Mutex
	collected time.Time
	took      time.Duration
}

// heapUsed is what the kernel uses, including garbage, and goroutine stacks, such as those of
// timers.
func heapUsed() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() + s[1].Value.Uint64())
}

// seemsFull checks from time to time, counting garbage, and costs next to nothing.
func (m *kernelMemory) seemsFull(beyond int64) bool {
	known := m.over.Load() > beyond
	if m.calls.Add(1)%kmemEvery != 0 && !known {
		return false
	}
	most, used := m.most(), m.used()
	if used <= most {
		m.over.Store(0)
	}
	return most > 0 && used > most+beyond && (known || used > m.live.Load()+kmemGrowth) && m.now().UnixNano() > m.spared.Load()
}

// spare suspends refusals for a while.
func (m *kernelMemory) spare() { m.spared.Store(m.now().Add(kmemSpared).UnixNano()) }

// provesFull collects garbage first, so that memory just released does not count.
func (m *kernelMemory) provesFull(beyond int64) bool {
	m.look(m.now(), m.most())
	return m.over.Load() > beyond
}

// look collects garbage unless that was done since the given time.
func (m *kernelMemory) look(since time.Time, most int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.collected.After(since) {
		return
	}
	if rest := min(kmemRest*m.took, kmemPause) - m.now().Sub(m.collected); rest > 0 {
		m.sleep(rest)
	}
	begun := m.now()
	m.collect()
	m.live.Store(m.used())
	m.over.Store(m.live.Load() - most)
	m.collected = m.now()
	m.took = m.collected.Sub(begun)
}

// takes refuses a call that uses kernel memory, with an error.
func takes(why error) guard {
	return func(t *kernel.Task, _ arch.SyscallArguments) error {
		if kmem.seemsFull(0) && !isProcessOne(t) && kmem.provesFull(0) {
			return why
		}
		return nil
	}
}

// takesIf is takes for calls whose arguments ask for memory.
func takesIf(is func(arch.SyscallArguments) bool, why error) guard {
	refuse := takes(why)
	return func(t *kernel.Task, args arch.SyscallArguments) error {
		if !is(args) {
			return nil
		}
		return refuse(t, args)
	}
}

// sends refuses to put more into a pipe or a socket.
func sends(t *kernel.Task, args arch.SyscallArguments) error {
	if beyond := kmem.most() / kmemSendPart; !kmem.seemsFull(beyond) || isProcessOne(t) || !kmem.provesFull(beyond) {
		return nil
	}
	f := t.GetFile(args[0].Int())
	if f == nil {
		return nil // the call itself reports the error
	}
	defer f.DecRef(t)
	stat, err := f.Stat(t, vfs.StatOptions{Mask: linux.STATX_TYPE})
	if kind := stat.Mode & linux.S_IFMT; err != nil || kind != linux.S_IFIFO && kind != linux.S_IFSOCK {
		return nil
	}
	return linuxerr.ENOBUFS
}

// sendsTo is sends to another argument.
func sendsTo(n int) guard {
	return func(t *kernel.Task, args arch.SyscallArguments) error {
		args[0] = args[n]
		return sends(t, args)
	}
}

func init() {
	for why, names := range map[error][]string{
		linuxerr.ENOSPC: {
			"mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "link", "linkat", "creat",
			"setxattr", "lsetxattr", "fsetxattr", "inotify_add_watch", "shmget", "semget", "msgget", "mq_open", "mount", "fsopen", "unshare",
		},
		linuxerr.ENFILE: {
			"pipe", "pipe2", "socket", "socketpair", "accept", "accept4", "eventfd", "eventfd2", "epoll_create", "epoll_create1",
			"inotify_init", "inotify_init1", "signalfd", "signalfd4", "timerfd_create", "memfd_create", "io_uring_setup",
		},
		linuxerr.ENOMEM: {"msgsnd", "mq_timedsend"},
		linuxerr.EAGAIN: {"timer_create", "rt_sigqueueinfo"},
		linuxerr.EDQUOT: {"add_key"},
	} {
		for _, name := range names {
			guards[name] = guards[name].and(takes(why))
		}
	}
	for name, g := range map[string]guard{
		"open":      takesIf(func(a arch.SyscallArguments) bool { return a[1].Uint()&linux.O_CREAT != 0 }, linuxerr.ENOSPC),
		"openat":    takesIf(func(a arch.SyscallArguments) bool { return a[2].Uint()&linux.O_CREAT != 0 }, linuxerr.ENOSPC),
		"epoll_ctl": takesIf(func(a arch.SyscallArguments) bool { return a[1].Int() == linux.EPOLL_CTL_ADD }, linuxerr.ENOSPC),
		"write":     sends, "writev": sends, "sendto": sends, "sendmsg": sends, "sendmmsg": sends, "vmsplice": sends,
		"sendfile": sends, "splice": sendsTo(2), "tee": sendsTo(1),
	} {
		guards[name] = guards[name].and(g)
	}
}
