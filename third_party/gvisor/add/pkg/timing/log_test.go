package timing

import (
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/log"
)

type recorder struct{ strings.Builder }

func (r *recorder) Emit(_ int, _ log.Level, _ time.Time, format string, _ ...any) {
	r.WriteString(format)
}

func TestTimerIsNotLogged(t *testing.T) {
	timer := New("start", time.Now())
	timer.Reached("somewhere")
	var r recorder
	log.SetTarget(&r)
	timer.Log()
	if r.Len() > 0 {
		t.Errorf("it logged %q", r.String())
	}
}
