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
	// fuzzMemory and fuzzFactor are what a stream may take: so much, and so much for each of
	// its bytes. That is more than the decoder's own bound, which counts objects, and not
	// what is read of the stream and lies in lists until it becomes one.
	fuzzMemory = 32 << 20
	fuzzFactor = 200
	fuzzTime   = 10 * time.Second
)

// FuzzStream decodes what a fuzzer makes of streams. Each is decoded or an error, in bounded
// time and memory.
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
