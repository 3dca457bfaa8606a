package gvisor_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/enginetest"
	"github.com/bothy-dev/bothy/engine/gvisor"
)

// TestSentryIsBornConfined, as the other test, looks at all of a machine's processes, at what the sentry
// may do, and at the threads of this one, which must not stay where they started it.
func TestSentryIsBornConfined(t *testing.T) { startConfined(t) }

// TestSentryConfinesItself starts a sentry where programs in memory cannot be executed.
func TestSentryConfinesItself(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	f, err := os.Create(data)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer gvisor.SetConfiner(f)()
	startConfined(t)
}

// TestFailedStartSaysWhy starts a sentry that cannot be executed.
func TestFailedStartSaysWhy(t *testing.T) {
	dir, parent := newPlace(t)
	sentry := filepath.Join(dir, "sentry")
	program, err := os.ReadFile(built.sentry)
	if err != nil {
		t.Fatal(err)
	}
	binary.NativeEndian.PutUint16(program[machineAt:], 0) // of no architecture
	if err := os.WriteFile(sentry, program, 0o755); err != nil {
		t.Fatal(err)
	}
	e, err := gvisor.New(gvisor.Options{Dir: filepath.Join(dir, "engine"), Sentry: sentry, CgroupParent: parent})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = e.Start(t.Context(), spec("unborn")); !errors.Is(err, unix.ENOEXEC) {
		t.Errorf("the start failed with %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "engine")); err != nil || len(left) > 0 {
		t.Errorf("machines are left: %v, %v", left, err)
	}
}

// machineAt is the offset of an ELF file's architecture.
const machineAt = 18

// TestAnotherProgramIsRefused makes an engine with a program that is not a sentry.
func TestAnotherProgramIsRefused(t *testing.T) {
	dir, parent := newPlace(t)
	_, err := gvisor.New(gvisor.Options{Dir: filepath.Join(dir, "engine"), Sentry: "/bin/sh", CgroupParent: parent})
	if bothy.ErrorCode(err) != bothy.CodeEngineMissing || bothy.AsError(err).Hint == "" {
		t.Errorf("the error is %v", err)
	}
}

func startConfined(t *testing.T) {
	t.Helper()
	dir, parent := newPlace(t)
	m, err := newEngine(t, dir, parent).Start(t.Context(), spec("born"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Destroy(context.Background()) })
	held, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", sentryOf(t, m)))
	if err != nil {
		t.Fatal(err)
	}
	for _, caps := range []string{
		// CAP_SYS_PTRACE alone, in a separate user namespace.
		"CapInh:\t0000000000000000", "CapPrm:\t0000000000080000", "CapEff:\t0000000000080000", "CapBnd:\t0000000000080000", "CapAmb:\t0000000000000000",
		"Seccomp:\t2", "NoNewPrivs:\t1",
	} {
		if !strings.Contains(string(held), caps+"\n") {
			t.Errorf("the sentry does not have %q:\n%s", caps, held)
		}
	}
	group := "/" + parent + "/born"
	for _, pid := range enginetest.Family(sentryOf(t, m)) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/cgroup", pid))
		if err != nil || len(threads) == 0 {
			t.Errorf("process %d has no threads: %v", pid, err)
		}
		for _, path := range threads {
			for controller, in := range groups(path) {
				if in != group {
					t.Errorf("%s: %s is %s, want %s", path, controller, in, group)
				}
			}
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var left []string
		own, _ := filepath.Glob("/proc/self/task/*/cgroup")
		for _, path := range own {
			for _, in := range groups(path) {
				if in == group {
					left = append(left, path)
				}
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("threads of the server are in the machine's cgroup: %v", left)
		}
	}
}

// groups maps the controllers that limit a machine to a thread's group.
func groups(path string) map[string]string {
	found := map[string]string{}
	b, _ := os.ReadFile(path) // it may have ended
	for line := range strings.Lines(string(b)) {
		w := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(w) < 3 {
			continue
		}
		for _, c := range strings.Split(w[1], ",") {
			switch c {
			case "cpu", "cpuacct", "memory", "pids", "freezer":
				found[c] = w[2]
			case "":
				if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
					found["all"] = w[2]
				}
			}
		}
	}
	return found
}
