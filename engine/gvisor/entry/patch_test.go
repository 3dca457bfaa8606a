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

// TestPatchesWhatIsMetAgain asks for the task as the library does before it rewrites
// an instruction.
func TestPatchesWhatIsMetAgain(t *testing.T) {
	const (
		first  = 16 // behind a system call
		second = 64 // behind another one
		other  = 96 // behind something else, as where a rewritten one is met
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
			t.Errorf("step %d: the task is told at %d: %v, want %v", i, step.ip, got, step.want)
		}
	}
}
