package entry

import (
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// TestKernelMemory lets a kernel use more and more, and less again, and counts how often
// garbage is collected for that.
func TestKernelMemory(t *testing.T) {
	const most = 100 << 20
	live, garbage, collections, now := int64(10<<20), int64(0), 0, time.Unix(1000, 0)
	m := &kernelMemory{
		used: func() int64 { return live + garbage }, now: func() time.Time { return now },
		most: func() int64 { return most }, collect: func() { garbage, collections = 0, collections+1 },
	}
	look := func(what string, full bool, collected int) {
		t.Helper()
		for range kmemEvery { // the last of them looks
			m.excess()
		}
		if got := m.excess() > 0; got != full {
			t.Errorf("%s: full is %v", what, got)
		}
		if collections != collected {
			t.Errorf("%s: garbage was collected %d times, not %d", what, collections, collected)
		}
	}
	look("little", false, 0)
	garbage = 200 << 20
	look("much garbage", false, 1)
	live = most + 1
	look("a little more than there may be, soon after", true, 2)
	look("it stays", true, 2)
	now = now.Add(2 * kmemStale)
	look("it stays, later", true, 3)
	garbage, live = 0, 20<<20
	look("all was given back", false, 3)
	m.most = func() int64 { return 0 }
	live = 1 << 40
	look("no bound", false, 3)
}

// TestGuardsAreOfCalls looks for names of calls that no table has: their guards would
// guard nothing.
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
