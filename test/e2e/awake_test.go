package e2e

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestSystemCallsWaitAwake counts how often the threads of a sandbox's kernel go to sleep while
// a program makes system calls. Where the kernel does not wait awake for the next one, that is
// for more than two of three. Where the host has other work, the kernel seldom tries to, so there is
// more than one try, and no other test runs meanwhile.
func TestSystemCallsWaitAwake(t *testing.T) {
	if runtime.NumCPU() == 1 {
		t.Skip("there is one processor")
	}
	const (
		calls = 20_000
		tries = 50
	)
	b := newBox(t, bothy.SandboxCreate{CPU: 2})
	least := math.MaxInt
	for range tries {
		before := b.sleeps(t)
		b.sh("", fmt.Sprintf("python3 -c 'import os; [os.getppid() for _ in range(%d)]'", calls))
		if least = min(least, b.sleeps(t)-before); least < calls/2 {
			return
		}
	}
	t.Errorf("threads slept %d times or more during %d system calls, of which most should have waited awake", least, calls)
}

// sleeps is how often the threads of the sandbox's kernel have gone to sleep by now.
func (b *box) sleeps(t *testing.T) (sum int) {
	t.Helper()
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", b.s.sentries(t, b.id)[0]))
	for _, path := range threads {
		status, _ := os.ReadFile(path) // a thread that has ended counts nothing
		_, count, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		count, _, _ = strings.Cut(count, "\n")
		n, _ := strconv.Atoi(strings.TrimSpace(count))
		sum += n
	}
	return sum
}
