package entry

import (
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// TestKernelMemory lets a kernel use more and more memory, then less again, and counts how often garbage
// is collected.
func TestKernelMemory(t *testing.T) {
	const most = 100 << 20
	live, garbage, collections, slept, now := int64(10<<20), int64(0), 0, time.Duration(0), time.Unix(1000, 0)
	m := &kernelMemory{
		used: func() int64 { return live + garbage }, now: func() time.Time { return now },
		sleep: func(d time.Duration) { slept += d; now = now.Add(d) },
		most:  func() int64 { return most },
		collect: func() {
			garbage, collections = 0, collections+1
			now = now.Add(5 * time.Millisecond)
		},
	}
	look := func(what string, full bool, collected int) {
		t.Helper()
		for range kmemEvery - 1 {
			if m.isFull(0) && !full {
				t.Errorf("%s: it is full", what)
			}
		}
		collections = 0
		if got := m.isFull(0); got != full {
			t.Errorf("%s: full is %v", what, got)
		}
		if collections != collected {
			t.Errorf("%s: garbage was collected %d times, want %d", what, collections, collected)
		}
	}
	look("little", false, 0)
	garbage = 200 << 20
	for range kmemEvery {
		m.isFull(0)
	}
	if garbage != 0 || m.over.Load() > 0 {
		t.Errorf("with much garbage: %d bytes are left, over by %d", garbage, m.over.Load())
	}
	look("nothing new", false, 0)
	live = most + 1
	look("more than there may be", true, 1)
	if m.isFull(1 << 20) {
		t.Error("the reserve is used up")
	}
	if slept == 0 || slept > kmemEvery*kmemPause {
		t.Errorf("a caller that was refused %d times waited for %v", kmemEvery, slept)
	}
	m.spare()
	look("while a checkpoint is written", false, 0)
	now = now.Add(kmemSpared + 1)
	look("more than there may be, still", true, 1)
	garbage, live = most, 20<<20 // everything was just freed
	look("given back", false, 0)
	live, m.most = 1<<40, func() int64 { return 0 }
	look("no bound", false, 0)
}

// TestGuardsAreOfCalls fails if a guard names a call that is in no table, and so guards nothing.
func TestGuardsAreOfCalls(t *testing.T) {
	known := map[string]bool{}
	for _, table := range kernel.SyscallTables() {
		for _, call := range table.Table {
			known[call.Name] = true
		}
	}
	for name := range guards {
		if !known[name] {
			t.Errorf("there is no call %q", name)
		}
	}
}

// isFull reports whether the kernel uses more than n bytes beyond its limit.
func (m *kernelMemory) isFull(beyond int64) bool { return m.seemsFull(beyond) && m.provesFull(beyond) }
