package entry

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/usermem"

	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

// The library rewrites a system call instruction when a program first executes it, so that it
// takes a faster path from then on. That costs as much as several calls on the slow path: the
// page is copied, unmapped and faulted in again. A short-lived program executes most of its
// instructions once, so this never pays off. So an instruction is rewritten only when a thread
// executes it again.

const platformName = "systrap"

// patchLater makes the platform delay rewriting.
func patchLater() {
	if eager, err := platform.Lookup(platformName); err == nil {
		platform.Register(platformName, patientConstructor{eager, new(atomic.Bool)})
	}
}

type patientConstructor struct {
	platform.Constructor
	made *atomic.Bool
}

// New is called when the sentry starts, and once more for a kernel that is restored.
func (c patientConstructor) New(opts platform.Options) (platform.Platform, error) {
	p, err := c.Constructor.New(opts)
	if err != nil {
		return nil, err
	}
	if c.made.CompareAndSwap(false, true) {
		warmLater(p)
	} else {
		begun.Store(true)
		caller.restored.Store(true)
	}
	if !tuning.On(tuning.LatePatch) {
		return p, nil
	}
	return patientPlatform{p}, nil
}

type patientPlatform struct{ platform.Platform }

func (p patientPlatform) NewContext(ctx context.Context) platform.Context {
	return &patientContext{Context: p.Platform.NewContext(ctx)}
}

type patientContext struct {
	platform.Context
	running running
}

func (c *patientContext) Switch(ctx context.Context, mm platform.MemoryManager, ac *arch.Context64, cpu int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	c.running.Context, c.running.memory, c.running.ac = ctx, mm, ac
	return c.Context.Switch(&c.running, mm, ac, cpu)
}

// running is the context in which a thread of a program runs. The platform asks it for the task
// before it rewrites the last instruction, and rewrites nothing if there is none.
type running struct {
	context.Context
	memory usermem.IO
	ac     *arch.Context64
	// passed has a bit for each instruction that was executed. Some share a bit, and of those
	// the later one is rewritten the first time.
	passed [16]uint64
}

func (r *running) Value(key any) any {
	if key == kernel.CtxTask && r.isAtCall() && !r.isPassed() {
		return nil
	}
	return r.Context.Value(key)
}

// isAtCall reports whether the last instruction was a system call. The library also asks for the
// task at an instruction that was rewritten, which has other bytes.
func (r *running) isAtCall() bool {
	var code [2]byte
	at := hostarch.Addr(r.ac.IP()) - hostarch.Addr(len(code))
	n, err := r.memory.CopyIn(r.Context, at, code[:], usermem.IOOpts{})
	return n == len(code) && err == nil && code == [2]byte{0x0f, 0x05}
}

// isPassed reports whether the instruction was executed before, and records it.
func (r *running) isPassed() bool {
	const spread = 0x9e3779b97f4a7c15 // so that neighbours differ in the highest bits
	at := uint64(r.ac.IP()) * spread >> (64 - 10)
	word, bit := &r.passed[at/64], uint64(1)<<(at%64)
	before := *word&bit != 0
	*word |= bit
	return before
}
