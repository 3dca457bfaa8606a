package gvisor_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/enginetest"
	"github.com/bothy-dev/bothy/engine/gvisor"
)

// built holds the programs and images of the tests, which are built once.
var built struct{ sentry, guest, rootfs string }

func TestMain(m *testing.M) {
	if dir := os.Getenv(leaveEnv); dir != "" {
		leave(dir)
		return
	}
	dir, err := os.MkdirTemp("", "gvisor-test")
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare the tests:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build makes the sentry, an image with the guest, and an image with only the folders that a root file
// system must have.
func build(dir string) error {
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	built.sentry = filepath.Join(dir, "sentry")
	built.guest = filepath.Join(dir, "guest.erofs")
	built.rootfs = filepath.Join(dir, "rootfs.erofs")
	guest, root := filepath.Join(dir, "guest"), filepath.Join(dir, "root")
	for _, d := range []string{guest, "dev", "etc", "proc", "run", "sys", "tmp", "workspace", ".bothy"} {
		if !filepath.IsAbs(d) {
			d = filepath.Join(root, d)
		}
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for _, argv := range [][]string{
		{"go", "build", "-trimpath", "-ldflags=-s -w", "-o", built.sentry, "github.com/bothy-dev/bothy/cmd/sentry"},
		{"go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(guest, "guest"), "github.com/bothy-dev/bothy/cmd/guest"},
		{"mkfs.erofs", "-E", "noinline_data", "-T0", built.guest, guest},
		{"mkfs.erofs", "-E", "noinline_data", "-T0", built.rootfs, root},
	} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", argv, err, out)
		}
	}
	return nil
}

var parents atomic.Int64

// newParent returns the name of a cgroup that is removed when the test ends.
func newParent(t *testing.T) string {
	t.Helper()
	parent := fmt.Sprintf("bothy-test-%d-%d", os.Getpid(), parents.Add(1))
	t.Cleanup(func() { gvisor.RemoveParent(parent) })
	return parent
}

// newPlace makes a folder for an engine, and names its cgroup.
func newPlace(t *testing.T) (dir, parent string) {
	t.Helper()
	parent, dir = newParent(t), t.TempDir()
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir, parent
}

// spec is a small machine.
func spec(id string) bothy.MachineSpec {
	return bothy.MachineSpec{
		ID: id, RootFS: built.rootfs, Guest: built.guest,
		Limits: bothy.Limits{CPU: 1, MemoryMB: 256, DiskMB: 64, Processes: 64},
	}
}

// newEngine returns an engine; those with the same dir share their cgroup.
func newEngine(t *testing.T, dir, parent string) bothy.Engine {
	t.Helper()
	e, err := gvisor.New(gvisor.Options{Dir: filepath.Join(dir, "engine"), Sentry: built.sentry, CgroupParent: parent})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEngine(t *testing.T) {
	names := map[string]string{}
	enginetest.Run(t, enginetest.Harness{
		RootFS: built.rootfs, Guest: built.guest,
		New: func(t *testing.T, dir string) bothy.Engine {
			if names[dir] == "" {
				names[dir] = newParent(t)
			}
			return newEngine(t, dir, names[dir])
		},
	})
}
