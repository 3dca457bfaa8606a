package gvisor_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

// TestEngineWithoutOptimisations runs the engine's suite with all optimisations switched off, except for
// the one that announces the guest.
func TestEngineWithoutOptimisations(t *testing.T) {
	if os.Getenv(tuning.Variable) != "" {
		t.Skip("some are off already")
	}
	var off []string
	for _, o := range tuning.All {
		if o.Name != tuning.Announce {
			off = append(off, o.Name)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestEngine$")
	cmd.Env = append(os.Environ(), tuning.Variable+"="+strings.Join(off, ","))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
