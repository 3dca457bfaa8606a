package microvm_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestDamagedDevicesAreRefused restores machines from device states with some changed bytes. The result
// is a machine, or an error that says so and nothing left.
func TestDamagedDevicesAreRefused(t *testing.T) {
	e := newEngine(t, options(t.TempDir(), newParent(t)))
	m, err := e.Start(t.Context(), spec("origin"))
	use(t, m, err)
	image := t.TempDir()
	if err := m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: image, Stop: true}); err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(image, "devices")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for name, damage := range map[string]func([]byte) []byte{
		"cut":   func(b []byte) []byte { return b[:len(b)/3] },
		"empty": func([]byte) []byte { return nil },
		"noise": func(b []byte) []byte {
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			return b
		},
		"long names": func(b []byte) []byte {
			for i := range 200 {
				b[8+i] = 0xff
			}
			return b
		},
	} {
		if err := os.WriteFile(path, damage(append([]byte(nil), whole...)), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := e.Restore(t.Context(), spec("copy"), image)
		if err == nil {
			m.Destroy(context.Background())
		}
		if be := bothy.AsError(err); err == nil || be.Code != bothy.CodeSnapshotDamaged || be.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := e.Sweep(context.Background(), func(string) bool { return false }); err != nil || len(left) > 0 {
		t.Errorf("machines are left: %v, %v", left, err)
	}
}
