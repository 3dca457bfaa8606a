package gvisor_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/gvisor"
)

// checkpointed starts a machine and saves its memory.
func checkpointed(t *testing.T, e bothy.Engine) (image string) {
	t.Helper()
	m, err := e.Start(t.Context(), spec("origin"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Destroy(context.Background())
	m.(bothy.Announcer).Announced(t.Context())
	image = t.TempDir()
	if err := m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: image}); err != nil {
		t.Fatal(err)
	}
	return image
}

func nothingLeft(t *testing.T, e bothy.Engine) {
	t.Helper()
	if left, err := e.Sweep(context.Background(), func(string) bool { return false }); err != nil || len(left) > 0 {
		t.Errorf("machines are left: %v, %v", left, err)
	}
}

// TestDamagedKernelIsRefused restores states with changed bytes, including lengths that make the decoder
// request much memory. The result is a machine, or an error within the limits of a restore and nothing
// left.
func TestDamagedKernelIsRefused(t *testing.T) {
	dir, parent := newPlace(t)
	e := newEngine(t, dir, parent)
	image := checkpointed(t, e)
	path := filepath.Join(image, checkpointfiles.StateFileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for i := range 12 {
		damaged := append([]byte(nil), whole...)
		switch i % 4 {
		case 0: // the end is missing
			damaged = damaged[:random.IntN(len(damaged))]
		case 1: // a number became large
			at := random.IntN(len(damaged) - 16)
			copy(damaged[at:], "\xff\xff\xff\xff\xff\xff\xff\x7f")
		case 2:
			binary.LittleEndian.PutUint64(damaged[random.IntN(len(damaged)-8):], random.Uint64())
		default:
			for range 20 {
				damaged[random.IntN(len(damaged))] ^= 1 << random.IntN(8)
			}
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := e.Restore(t.Context(), spec("copy"), image)
		if err == nil {
			m.Destroy(t.Context())
			continue
		}
		refused++
		if be := bothy.AsError(err); be.Code != bothy.CodeSnapshotDamaged || be.Hint == "" {
			t.Errorf("change %d: %v", i, err)
		}
	}
	if refused == 0 {
		t.Error("no change was noticed: the test damages the wrong file")
	}
	nothingLeft(t, e)
}

// TestHungRestoreEnds restores into a sentry that reads nothing.
func TestHungRestoreEnds(t *testing.T) {
	dir, parent := newPlace(t)
	e := newEngine(t, dir, parent)
	image := checkpointed(t, e)
	kind := spec("")
	kind = kind.Kind()
	if err := e.(bothy.Preparer).Prepare(t.Context(), kind); err != nil {
		t.Fatal(err)
	}
	groups, err := cgroup.NewParent(parent)
	if err != nil {
		t.Fatal(err)
	}
	names, err := groups.List()
	if err != nil || len(names) != 1 || !strings.HasPrefix(names[0], "spare-") {
		t.Fatalf("the machines are %v, %v", names, err)
	}
	pids, err := groups.Open(names[0]).Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		unix.Kill(pid, unix.SIGSTOP)
	}
	e.(*gvisor.Engine).SetControlTime(time.Second)
	err = within(t, "a restore", func() error {
		m, err := e.Restore(t.Context(), spec("copy"), image)
		if err == nil {
			m.Destroy(context.Background())
		}
		return err
	})
	if bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
		t.Errorf("the restore ended with %v", err)
	}
	nothingLeft(t, e)
	for _, pid := range pids {
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err == nil {
			t.Errorf("process %d of the sentry still exists", pid)
		}
	}
}
