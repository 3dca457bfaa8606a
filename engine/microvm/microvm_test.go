package microvm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/enginetest"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/engine/microvm/boot"
)

// built holds the programs and images of the tests, which are built once.
var built struct {
	vminit, guest, rootfs string
	image                 boot.Image
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "microvm-test")
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

// kernels is where kernels are kept between runs of the tests.
func kernels() string {
	if dir := os.Getenv("BOTHY_KERNELS"); dir != "" {
		return dir
	}
	return "/var/cache/bothy/kernels"
}

// build makes the supervisor, an image with the guest, and an image with nothing but
// the folders that a root file system must have, and fetches a kernel.
func build(dir string) error {
	built.vminit = filepath.Join(dir, "vminit")
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
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/:/probe\nuser:x:1000:1000::/workspace:/probe\n", "etc/group": "root:x:0:\nuser:x:1000:\n",
		"etc/gone": "gone", "etc/opaque/old": "old", "lib/os-release": "",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			return err
		}
	}
	for _, argv := range [][]string{
		{"go", "build", "-trimpath", "-ldflags=-s -w", "-o", built.vminit, "github.com/bothy-dev/bothy/cmd/vminit"},
		{"go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(guest, "guest"), "github.com/bothy-dev/bothy/cmd/guest"},
		{"go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(root, "probe"), "./testdata/probe"},
		{"mkfs.erofs", "-E", "noinline_data", "-T0", built.guest, guest},
		{"mkfs.erofs", "-E", "noinline_data", "-T0", built.rootfs, root},
	} {
		if err := command(argv...); err != nil {
			return err
		}
	}
	var err error
	built.image, err = boot.Prepare(context.Background(), kernels(), boot.Options{Init: built.vminit})
	return err
}

func command(argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", argv, err, out)
	}
	return nil
}

var parents atomic.Int64

// options returns the options of an engine in dir. Engines with the same parent share their cgroup.
func options(dir, parent string) microvm.Options {
	return microvm.Options{
		Dir: filepath.Join(dir, "engine"), Init: built.vminit, Boot: built.image, Guest: built.guest, CgroupParent: parent,
	}
}

func newEngine(t *testing.T, o microvm.Options) *microvm.Engine {
	t.Helper()
	e, err := microvm.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// newParent returns the name of a cgroup that is removed when the test ends.
func newParent(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("bothy-vmtest-%d-%d", os.Getpid(), parents.Add(1))
	t.Cleanup(func() {
		if p, err := cgroup.NewParent(name); err == nil {
			p.Remove()
		}
	})
	return name
}

func TestEngine(t *testing.T) {
	var mu sync.Mutex
	names := map[string]string{}
	enginetest.Run(t, enginetest.Harness{
		RootFS: built.rootfs, Guest: built.guest, Patience: 2 * time.Minute, Parallel: true,
		New: func(t *testing.T, dir string) bothy.Engine {
			mu.Lock()
			defer mu.Unlock()
			if names[dir] == "" {
				names[dir] = newParent(t)
			}
			return newEngine(t, options(dir, names[dir]))
		},
	})
}
