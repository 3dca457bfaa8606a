package sandboxsetup

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/capability"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/timing"
)

// Who may inherit nothing is done with after capset. Clearing the ambient capabilities
// is followed by a line in the log.
func TestAmbientCapabilitiesAreClearedOnce(t *testing.T) {
	held, err := capability.NewPid2(0)
	if err == nil {
		err = held.Load()
	}
	if err != nil {
		t.Fatal(err)
	}
	last, err := capability.LastCap()
	if err != nil {
		t.Fatal(err)
	}
	r := ResolvedThreadCaps{bounding: ^uint64(0), lastCap: last}
	for c := capability.Cap(0); c <= last; c++ {
		if held.Get(capability.EFFECTIVE, c) {
			r.effective |= 1 << c
		}
		if held.Get(capability.PERMITTED, c) {
			r.permitted |= 1 << c
		}
	}
	var said bytes.Buffer
	log.SetTarget(&log.GoogleEmitter{Writer: &log.Writer{Next: &said}})
	apply := func() bool {
		said.Reset()
		if err := r.Apply(timing.New("test", time.Now())); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(said.String(), "Capabilities applied")
	}
	if apply() {
		t.Error("ambient capabilities were cleared twice")
	}
	clearAmbient = true
	defer func() { clearAmbient = false }()
	if !apply() {
		t.Error("they are not cleared where that is asked for")
	}
}
