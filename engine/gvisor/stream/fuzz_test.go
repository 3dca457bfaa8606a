//go:build gvisorpatched

package stream

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/state"
)

const (
	// fuzzMemory and fuzzFactor limit the memory for a stream: a fixed amount, and a multiple of its
	// size. The decoder's own limit is lower, but counts only objects, not the parts in lists from
	// which it makes them.
	fuzzMemory = 32 << 20
	fuzzFactor = 200
	fuzzTime   = 10 * time.Second
)

// FuzzStream decodes fuzzed streams. Each must be decoded or refused in bounded time and memory.
func FuzzStream(f *testing.F) {
	for _, n := range []int{1, 2, 30} {
		var b bytes.Buffer
		if _, err := state.Save(f.Context(), &b, chain(n)); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
		f.Add(b.Bytes()[:b.Len()/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		_, err := state.Load(t.Context(), bytes.NewReader(data), &node{})
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(fuzzMemory+fuzzFactor*len(data)) {
			t.Errorf("%d bytes take %d of memory: %.200v", len(data), used, err)
		}
		if took > fuzzTime {
			t.Errorf("%d bytes take %v: %.200v", len(data), took, err)
		}
	})
}
