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

// Files without content, pipes, sockets, watches and the like cost a sandbox's kernel
// memory that belongs to no process, or to one that looks small: to kill the largest one
// does not free it, and the sandbox would end. So a program may have its kernel use only a
// part of the sandbox's memory. Beyond that, calls that take more fail as they do where
// Linux has no more of what they ask for; those that give back, and process 1, go on.
const (
	// kmemPart is which part of the sandbox's memory that is.
	kmemPart = 2
	// kmemSendPart is which part of it there is beyond that for what is sent: a command
	// must be able to say what has failed.
	kmemSendPart = 8
	// kmemEvery is how many calls there are between two looks.
	kmemEvery = 64
	// kmemStale is how long, and kmemGrowth how many bytes, what a collection of garbage
	// has found counts.
	kmemStale  = time.Second
	kmemGrowth = 16 << 20
)

// kmem is that of this sentry's only sandbox.
var kmem = kernelMemory{used: heapUsed, collect: runtime.GC, now: time.Now, most: func() int64 {
	return int64(usage.MaximumTotalMemoryBytes) / kmemPart
}}

type kernelMemory struct {
	calls atomic.Uint64
	over  atomic.Int64 // how many bytes too many were in use at the last look

	used    func() int64
	collect func()
	now     func() time.Time
	most    func() int64 // 0: there is no bound

	mu        sync.Mutex
	collected time.Time
	live      int64
}

// heapUsed is what the kernel uses, garbage included, and the stacks of what waits, such
// as for a timer.
func heapUsed() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() + s[1].Value.Uint64())
}

// excess is how much more than it may the kernel uses. It looks now and then, and often
// while that is too much.
func (m *kernelMemory) excess() int64 {
	if m.calls.Add(1)%kmemEvery == 0 || m.over.Load() > 0 {
		m.look()
	}
	return m.over.Load()
}

func (m *kernelMemory) look() {
	most := m.most()
	if most == 0 {
		return
	}
	used := m.used()
	if used > most && m.mu.TryLock() {
		// Much of it may be garbage. What was live does not become less in no time.
		if used > m.live+kmemGrowth || m.now().Sub(m.collected) > kmemStale {
			m.collect()
			m.live, m.collected = m.used(), m.now()
		}
		used = m.live
		m.mu.Unlock()
		m.over.Store(used - most)
		return
	}
	if used <= most {
		m.over.Store(0)
	}
}

// takes refuses a call that takes the kernel's memory with an error.
func takes(why error) guard {
	return func(t *kernel.Task, _ arch.SyscallArguments) error {
		if kmem.excess() > 0 && !isProcessOne(t) {
			return why
		}
		return nil
	}
}

// takesIf is takes where the call's arguments say so.
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
	if kmem.excess() <= kmem.most()/kmemSendPart || isProcessOne(t) {
		return nil
	}
	f := t.GetFile(args[0].Int())
	if f == nil {
		return nil // the call says so
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
