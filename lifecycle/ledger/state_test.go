package ledger

import (
	"testing"

	"github.com/bothy-dev/bothy"
)

// Every way in which a sandbox starts running counts once against its project's plan.
func TestWhatCountsAsAStart(t *testing.T) {
	begins := map[[2]bothy.State]bool{
		{"", bothy.StateStarting}: true, {"", bothy.StateRunning}: true,
		{bothy.StatePaused, bothy.StateResuming}: true, {bothy.StateFailed, bothy.StateStarting}: true,
	}
	for from, next := range transitions {
		for _, to := range next {
			if got, want := starts(from, to), begins[[2]bothy.State{from, to}]; got != want {
				t.Errorf("from %q to %q: %v, want %v", from, to, got, want)
			}
		}
	}
}
