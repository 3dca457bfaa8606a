package probe

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/engine/gvisor/library"
)

// A sentry that was built from plain gVisor is worth a warning.
func TestDoctorTellsTheLibrary(t *testing.T) {
	for patched, want := range map[bool]string{true: "gVisor v1 with the patches", false: "plain gVisor v1"} {
		var s doctor.Started
		setFromLibrary(&s, library.Library{Version: "v1", Patched: patched})
		if !strings.Contains(s.Detail, want) || (s.Slow == "") != patched {
			t.Errorf("patched %v: %+v", patched, s)
		}
	}
}
