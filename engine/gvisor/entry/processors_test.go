//go:build gvisorpatched

package entry

import (
	"runtime"
	"testing"

	"gvisor.dev/gvisor/pkg/gomaxprocs"
)

func TestProcessorsAreFixed(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { gomaxprocs.OnSet = nil; runtime.GOMAXPROCS(before) })
	fixProcessors()
	gomaxprocs.SetBase(3)
	gomaxprocs.Add(100)
	defer gomaxprocs.Add(-100)
	if got := runtime.GOMAXPROCS(0); got != 3+moreProcessors {
		t.Errorf("there are %d processors for a sandbox with 3", got)
	}
}
