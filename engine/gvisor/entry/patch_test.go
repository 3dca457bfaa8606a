package entry

import (
	"testing"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/usermem"
)

// owned is a context with a task.
type owned struct{ context.Context }

func (o owned) Value(key any) any {
	if key == kernel.CtxTask {
		return "the task"
	}
	return o.Context.Value(key)
}

// TestRepeatedInstructionsArePatched asks for the task as the library does before it rewrites an
// instruction.
func TestRepeatedInstructionsArePatched(t *testing.T) {
	const (
		first  = 16 // after a system call
		second = 64 // after another one
		other  = 96 // after something else, such as a rewritten instruction
	)
	memory := make([]byte, 128)
	copy(memory[first-2:], []byte{0x0f, 0x05})
	copy(memory[second-2:], []byte{0x0f, 0x05})
	cpuid.Initialize()
	ac := arch.New(arch.Host)
	r := running{Context: owned{context.Background()}, ac: ac, memory: &usermem.BytesIO{Bytes: memory}}
	asks := func(ip uintptr) bool {
		ac.SetIP(ip)
		return r.Value(kernel.CtxTask) != nil
	}
	for i, step := range []struct {
		ip   uintptr
		want bool
	}{
		{first, false}, {second, false}, {first, true}, {second, true}, {first, true}, {other, true},
	} {
		if got := asks(step.ip); got != step.want {
			t.Errorf("step %d: the task is notified at %d: %v, want %v", i, step.ip, got, step.want)
		}
	}
}

// TestLoopsArePatched runs a loop with as many system calls as real programs have, and a start of a program
// that makes many calls only once.
func TestLoopsArePatched(t *testing.T) {
	const (
		calls = 64
		apart = 4 << 10
	)
	memory := make([]byte, calls*apart)
	cpuid.Initialize()
	ac := arch.New(arch.Host)
	r := running{Context: owned{context.Background()}, ac: ac, memory: &usermem.BytesIO{Bytes: memory}}
	asked := [2]int{}
	for pass := range asked {
		for i := range calls {
			ip := i*apart + 16
			copy(memory[ip-2:], []byte{0x0f, 0x05})
			ac.SetIP(uintptr(ip))
			if r.Value(kernel.CtxTask) != nil {
				asked[pass]++
			}
		}
	}
	if asked[0] > calls/8 || asked[1] != calls {
		t.Errorf("of %d instructions %d are rewritten when first reached, and %d when reached again", calls, asked[0], asked[1])
	}
}
