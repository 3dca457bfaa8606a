package gvisor

import (
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestRestoreIsBounded checks the limits of a machine while its kernel state is read.
func TestRestoreIsBounded(t *testing.T) {
	l := bothy.Limits{CPU: 0.5, MemoryMB: 512, Processes: 256}
	usual := cgroupLimits(l)
	for _, c := range []struct{ state, most int64 }{{0, usual.MemoryBytes}, {1 << 20, usual.MemoryBytes + 16<<20}, {1 << 40, 3 * usual.MemoryBytes}} {
		if got := restoring(l, c.state); got.MemoryBytes != c.most || got.CPU != restoreCPUs || got.PIDs != usual.PIDs {
			t.Errorf("for a state of %d bytes the limits are %+v", c.state, got)
		}
	}
	l.CPU = 16
	if got := restoring(l, 0); got.CPU != 16 {
		t.Errorf("a machine of 16 processors is read by %v", got.CPU)
	}
}
