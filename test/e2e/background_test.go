package e2e

import (
	"fmt"
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestCommandsWhileAnotherRuns runs commands whose output ends with them, and commands whose output is
// held open by a child that keeps running.
func TestCommandsWhileAnotherRuns(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	other := b.try(bothy.ExecRequest{Command: bothy.Command{Args: []string{"sleep", "1000"}}, Background: true})
	for i := range 20 {
		for _, script := range []string{"exit %d", "sleep 1000 & exit %d"} {
			r := b.try(line("", fmt.Sprintf(script, i)))
			if r.ExitCode != i {
				t.Errorf("%q exits with %d", fmt.Sprintf(script, i), r.ExitCode)
			}
		}
	}
	b.running(other.PID)
}
