//go:build gvisorpatched

package gvisor_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/state/statefile"

	_ "github.com/bothy-dev/bothy/engine/gvisor/entry" // registers the types that the sentry saves
)

const (
	// decodeTimeEnv is the environment variable for how long to damage and decode states.
	decodeTimeEnv = "BOTHY_DECODE_TIME"
	// decodeTime is the default.
	decodeTime = 20 * time.Second
	// decodeMemory and decodeFactor limit the memory for decoding: a fixed amount, and a multiple of the
	// state's size. An undamaged state takes 20 times its size.
	decodeMemory = 64 << 20
	decodeFactor = 200
	// decodeEnd is how long decoding may take, on a busy machine.
	decodeEnd = 20 * time.Second
)

// decode decodes the objects of a checkpoint's kernel without calling any of their functions.
func decode(t *testing.T, path string) error {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := statefile.NewReader(f, nil)
	if err != nil {
		f.Close()
		return err
	}
	defer r.Close()
	if err := state.Check(t.Context(), r, new(cpuid.FeatureSet)); err != nil {
		return err
	}
	return state.Check(t.Context(), r, new(kernel.Kernel))
}

// damage changes a state as a disk error or an attacker would.
func damage(r *rand.Rand, whole []byte) []byte {
	b := append([]byte(nil), whole...)
	for range 1 + r.IntN(4) {
		at := r.IntN(len(b) - 16)
		switch r.IntN(7) {
		case 0:
			b = b[:max(32, at)]
		case 1: // a number becomes the largest of its size
			copy(b[at:], "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[r.IntN(9):])
		case 2:
			b[at] = byte(r.IntN(20)) // a different kind of value, or a small number
		case 3:
			for range 20 {
				b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			}
		case 4: // a part is repeated
			end := min(len(b), at+1+r.IntN(4096))
			b = append(b[:end:end], b[at:]...)
		case 5: // a part is missing
			b = append(b[:at:at], b[min(len(b), at+1+r.IntN(64)):]...)
		case 6: // a part overwrites another
			copy(b[r.IntN(len(b)):], b[at:min(len(b), at+1+r.IntN(256))])
		}
		if len(b) < 64 {
			break
		}
	}
	return b
}

// TestDamagedStateIsDecodedOrRefused decodes the kernel of a real checkpoint, and thousands that
// somebody has damaged. It does so here, where nothing but the decoder bounds what they take.
func TestDamagedStateIsDecodedOrRefused(t *testing.T) {
	during := decodeTime
	if s := os.Getenv(decodeTimeEnv); s != "" {
		var err error
		if during, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	} else if testing.Short() {
		during = time.Second
	}
	dir, parent := newPlace(t)
	whole, err := os.ReadFile(filepath.Join(checkpointed(t, newEngine(t, dir, parent)), checkpointfiles.StateFileName))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state")
	measure := func(b []byte) (used uint64, took time.Duration, err error) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		err = decode(t, path)
		took = time.Since(began)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc, took, err
	}
	if used, _, err := measure(whole); err != nil || used > 40*uint64(len(whole)) {
		t.Fatalf("an undamaged state of %d bytes takes %d of memory: %v", len(whole), used, err)
	}
	seed := uint64(time.Now().UnixNano())
	refused, all, most, longest := 0, 0, uint64(0), time.Duration(0)
	for i, began := uint64(0), time.Now(); time.Since(began) < during; i++ {
		s := seed + i
		if i < 50 {
			s = i // the same in each run
		}
		b := damage(rand.New(rand.NewPCG(s, 1)), whole)
		used, took, err := measure(b)
		if err != nil {
			refused++
			if len(err.Error()) > 1<<20 {
				t.Errorf("seed %d: the error has %d bytes", s, len(err.Error()))
			}
		}
		if used > uint64(decodeMemory+decodeFactor*len(b)) {
			t.Errorf("seed %d: %d bytes take %d of memory: %.300v", s, len(b), used, err)
		}
		if took > decodeEnd {
			t.Errorf("seed %d: %d bytes take %v: %.300v", s, len(b), took, err)
		}
		all, most, longest = all+1, max(most, used), max(longest, took)
	}
	t.Logf("%d of %d states of %d bytes are refused; one took %d MB at most, and %v", refused, all, len(whole), most>>20, longest)
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}
