package entry

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// machine is the id of the machine that this sandbox was adopted as, or nil.
var machine atomic.Pointer[string]

// mixBootID makes /proc/sys/kernel/random/boot_id, the only static file that is a UUID, unique
// in each copy: the kernel's memory holds the same value in all of them. It does not change when
// a sandbox is paused and resumed.
func mixBootID() {
	onStaticFile(func(data string) string {
		if id := machine.Load(); id != nil && isUUID(data) {
			return bootID(data, *id)
		}
		return data
	})
}

func bootID(kernels, machine string) string {
	u := sha256.Sum256([]byte(strings.TrimSpace(kernels) + machine))
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80 // a random one, by RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x\n", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

func isUUID(s string) bool {
	if len(s) != 37 || s[36] != '\n' {
		return false
	}
	for i, c := range []byte(s[:36]) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') {
			return false
		}
	}
	return true
}

// longestMachine is the maximum length of a machine's id.
const longestMachine = 64

// noteMachine reads the id that process 1 passes when it reports that it is adopted.
func noteMachine(t *kernel.Task, args arch.SyscallArguments) {
	n := args[2].SizeT()
	if n == 0 || n > longestMachine {
		return
	}
	b := make([]byte, n)
	if _, err := t.CopyInBytes(args[1].Pointer(), b); err == nil {
		id := string(b)
		machine.Store(&id)
	}
}
