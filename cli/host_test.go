package cli

import (
	"slices"
	"testing"

	"github.com/bothy-dev/bothy"
)

// What a host told last is not shown of one that was given up: nothing of it runs any more.
func TestADeadHostHasNoFigures(t *testing.T) {
	h := bothy.ClusterHost{
		Name: "two", State: bothy.HostUp, Address: "192.0.2.2:7710", LeaseSeconds: 12,
		HostFigures: bothy.HostFigures{Live: 3, CPUs: 2, MemoryBytes: 4 << 30, FreeMemoryBytes: 1 << 30},
	}
	if got, want := hostRow(h)[3:8], []string{"0", "3", "2", "1024 of 4096 MB", "12 s"}; !slices.Equal(got, want) {
		t.Errorf("of one that runs: %q, want %q", got, want)
	}
	h.State, h.LeaseSeconds = bothy.HostDead, 0
	if got, want := hostRow(h)[3:8], []string{"0", "-", "-", "-", "ended"}; !slices.Equal(got, want) {
		t.Errorf("of one that is dead: %q, want %q", got, want)
	}
}
