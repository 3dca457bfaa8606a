package microvm_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/engine/microvm/boot"
)

// otherBuild makes another init program and guest, and thus another initramfs.
func otherBuild(t *testing.T, o *microvm.Options) {
	t.Helper()
	dir := t.TempDir()
	guest := filepath.Join(dir, "guest")
	o.Init, o.Guest = filepath.Join(dir, "vminit"), filepath.Join(dir, "guest.erofs")
	if err := os.Mkdir(guest, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		// With symbols, and with fewer optimisations of main.
		{"go", "build", "-trimpath", "-gcflags=-l", "-o", o.Init, "github.com/bothy-dev/bothy/cmd/vminit"},
		{"go", "build", "-trimpath", "-gcflags=-l", "-o", filepath.Join(guest, "guest"), "github.com/bothy-dev/bothy/cmd/guest"},
		{"mkfs.erofs", "-E", "noinline_data", "-T0", o.Guest, guest},
	} {
		if err := command(argv...); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if o.Boot, err = boot.Prepare(t.Context(), kernels(), boot.Options{Init: o.Init}); err != nil {
		t.Fatal(err)
	}
}

// TestMachineIsRestoredByItsOwnBuild upgrades the init program and the guest, restores an older machine,
// takes a snapshot of it again under its own build, and restores that.
func TestMachineIsRestoredByItsOwnBuild(t *testing.T) {
	dir, parent := t.TempDir(), newParent(t)
	open := func() *builds.Store {
		store, err := builds.Open(filepath.Join(dir, "builds"), builds.Options{
			Speaks: map[string]builds.Range{microvm.Name: {Oldest: microvm.OldestProtocol, Newest: microvm.Protocol}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	o := options(dir, parent)
	o.Builds = open()
	before := newEngine(t, o)
	build := before.Info().Build
	m, err := before.Start(t.Context(), spec("origin"))
	use(t, m, err)
	image := t.TempDir()
	if err := m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: image, Stop: true}); err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}

	store := open() // like the next server
	o.Builds = store
	otherBuild(t, &o)
	after := newEngine(t, o)
	if after.Info().Build == build {
		t.Fatal("it is the same build")
	}
	asCopy := spec("copy")
	asCopy.Guest = o.Guest
	if _, err := after.Restore(t.Context(), asCopy, image); bothy.ErrorCode(err) != bothy.CodeUnsupported {
		t.Errorf("restored by another build: %v", err)
	}
	asCopy.Build = build
	wake := func(image string) bothy.Machine {
		t.Helper()
		m, err := after.Restore(t.Context(), asCopy, image)
		if err != nil {
			t.Fatal(err)
		}
		if m.Build() != build {
			t.Errorf("it is of build %s", m.Build())
		}
		return m
	}
	m = wake(image)
	use(t, m, nil).adopt()
	none := func(context.Context) (map[string]int, error) { return nil, nil }
	if gone, err := store.Sweep(t.Context(), none); err != nil || len(gone) > 0 {
		t.Errorf("removed while a machine is running: %v, %v", gone, err)
	}
	again := t.TempDir()
	if err := m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: again, Stop: true}); err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	m = wake(again)
	use(t, m, nil).adopt()
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if gone, err := store.Sweep(t.Context(), none); err != nil || len(gone) != 1 || gone[0] != build {
		t.Errorf("removed afterwards: %v, %v", gone, err)
	}
	if _, err := after.Restore(t.Context(), asCopy, again); bothy.ErrorCode(err) != bothy.CodeUnsupported || !strings.Contains(bothy.AsError(err).Detail, "not kept") {
		t.Errorf("restored by a missing build: %v", err)
	}
}
