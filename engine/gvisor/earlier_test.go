package gvisor_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/enginetest"
	"github.com/bothy-dev/bothy/engine/gvisor"
)

// otherEnv names another bothy, as in test/snapshots. `make test-upgrade` sets it.
const otherEnv = "BOTHY_TEST_UPGRADE_B"

// earlier is an engine whose machines are all of an earlier build, like machines restored after an
// upgrade. It prepares no spares, since those have its own build.
type earlier struct {
	bothy.Engine
	build string
	close func() error
}

func (e earlier) Start(ctx context.Context, spec bothy.MachineSpec) (bothy.Machine, error) {
	if spec.Guest == built.guest { // not for a missing guest: the build has its own
		spec.Build = e.build
	}
	return e.Engine.Start(ctx, spec)
}

func (e earlier) Restore(ctx context.Context, spec bothy.MachineSpec, dir string) (bothy.Machine, error) {
	spec.Build = e.build
	return e.Engine.Restore(ctx, spec, dir)
}

func (e earlier) Close() error { return e.close() }

// TestEngineOfAnEarlierBuild runs the engine's suite with the sentry, guest and driver of another bothy.
// TestMemoryOutlivesUpgrades does part of that with builds of this tree.
func TestEngineOfAnEarlierBuild(t *testing.T) {
	other := os.Getenv(otherEnv)
	if other == "" {
		t.Skipf("%s names no other bothy: make test-upgrade OTHER=PATH", otherEnv)
	}
	home := t.TempDir()
	for d := home; d != os.TempDir() && d != "/"; d = filepath.Dir(d) { // sentries must be able to enter
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	keepBuilds(t, other, home)
	kept, err := builds.Open(filepath.Join(home, "engines"), builds.Options{
		Speaks: map[string]builds.Range{gvisor.Name: {Oldest: gvisor.OldestProtocol, Newest: gvisor.Protocol}},
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := builds.List(kept.Dir())
	if err != nil {
		t.Fatal(err)
	}
	var build string
	for _, b := range all {
		if b.Engine == gvisor.Name {
			build = b.Name
		}
	}
	if build == "" {
		t.Fatalf("%s has kept no build of gVisor, but %+v", other, all)
	}
	t.Log("machines of", build)

	names := map[string]string{}
	enginetest.Run(t, enginetest.Harness{
		RootFS: built.rootfs, Guest: built.guest,
		New: func(t *testing.T, dir string) bothy.Engine {
			if names[dir] == "" {
				names[dir] = newParent(t)
			}
			e, err := gvisor.New(gvisor.Options{
				Dir: filepath.Join(dir, "engine"), Sentry: built.sentry, Guest: built.guest, Builds: kept, CgroupParent: names[dir],
			})
			if err != nil {
				t.Fatal(err)
			}
			if e.Info().Build == build {
				t.Fatalf("%s is of this very build", other)
			}
			return earlier{e, build, e.Close}
		},
	})
}

// keepBuilds runs a server of another bothy until it has stored its engines' builds in its home.
func keepBuilds(t *testing.T, other, home string) {
	t.Helper()
	cmd := exec.Command(other, "serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "BOTHY_HOME="+home, "BOTHY_TEMPLATES="+filepath.Join(home, "templates"), "BOTHY_POOL=off")
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for lines := bufio.NewScanner(said); lines.Scan(); {
		log.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "msg=ready") {
			_ = cmd.Process.Signal(unix.SIGTERM)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", other, err, log.String())
	}
}
