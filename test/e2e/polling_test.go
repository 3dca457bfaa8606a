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

// TestKernelPollsBetweenSystemCalls counts how often the threads of a sandbox's kernel sleep while a
// program makes system calls. Without polling they sleep for more than two of three calls. On a busy
// host the kernel seldom polls, so the test tries repeatedly and does not run in parallel with others.
func TestKernelPollsBetweenSystemCalls(t *testing.T) {
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
	t.Errorf("threads slept at least %d times during %d system calls; most calls should be polled for", least, calls)
}

// sleeps returns how often the threads of the sandbox's kernel have slept so far.
func (b *box) sleeps(t *testing.T) (sum int) {
	t.Helper()
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", b.s.sentries(t, b.id)[0]))
	for _, path := range threads {
		status, _ := os.ReadFile(path) // threads that have ended do not count
		_, count, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		count, _, _ = strings.Cut(count, "\n")
		n, _ := strconv.Atoi(strings.TrimSpace(count))
		sum += n
	}
	return sum
}
