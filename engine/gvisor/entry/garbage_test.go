package entry

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// TestDeferralEndsAtItsLimit holds more memory than a deferral allows.
func TestDeferralEndsAtItsLimit(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	deferUntil(memoryOfRuntime() + 8<<20)
	var held [][]byte
	for range 64 {
		held = append(held, make([]byte, 1<<20))
	}
	setting := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		metrics.Read(setting)
		if percent, limit := setting[0].Value.Uint64(), setting[1].Value.Uint64(); percent == calmPercent && limit == math.MaxInt64 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("with %d MB in use, garbage is collected at %d %% and %d bytes", len(held), percent, limit)
		}
	}
	runtime.KeepAlive(held)
}
