// The names of this file and of cluster_split_test.go come before those of the other tests of several hosts, so that
// the longest tests begin first.

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/test/testserver"
)

// otherMachines returns the environment of a server whose virtual machines have another QEMU and
// another kernel: their files are longer.
func otherMachines(t *testing.T) []string {
	t.Helper()
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := kernelsFolder()
	if err != nil {
		t.Fatal(err)
	}
	current, err := os.ReadFile(filepath.Join(kernels, "current"))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(string(current))
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(kernels, name))); err != nil {
		t.Fatal(err)
	}
	lengthen := func(from, to string) int64 {
		content, err := os.ReadFile(from)
		if err == nil {
			content = append(content, make([]byte, 4096)...)
			err = os.WriteFile(to, content, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		return int64(len(content))
	}
	kernel := filepath.Join(dir, name, "vmlinux")
	size := lengthen(kernel, kernel)
	record := filepath.Join(dir, name, "kernel.json")
	about := map[string]any{}
	text, err := os.ReadFile(record)
	if err == nil {
		err = json.Unmarshal(text, &about)
	}
	if err == nil {
		about["size"] = size
		text, err = json.Marshal(about)
	}
	if err == nil {
		err = os.WriteFile(record, text, 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "current"), current, 0o644)
	}
	programs := filepath.Join(dir, "bin")
	if err == nil {
		err = os.Mkdir(programs, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	lengthen(qemu, filepath.Join(programs, filepath.Base(qemu)))
	return []string{"BOTHY_KERNELS=" + dir, "PATH=" + programs + ":" + os.Getenv("PATH")}
}

// machineBuilds are the builds of virtual machines that a host has.
func (s *server) machineBuilds(t *testing.T) map[string]builds.Build {
	t.Helper()
	found := map[string]builds.Build{}
	for _, b := range must(builds.List(filepath.Join(s.Home, "engines"))) {
		if b.Engine == "microvm" {
			found[b.Name] = b
		}
	}
	return found
}

// Memory of a virtual machine that is `durable: store` is restored without the host that wrote it, by a
// host that never had its QEMU and its kernel. It moves back with its memory and files.
func TestHostsRestoreAVirtualMachineOfALostHost(t *testing.T) {
	t.Parallel()
	needEngine(t, "microvm")
	_, blobs := newBlobs(t)
	hosts := newStoringHostsWith(t, "blobs: "+blobs+"\nengine: {microvm: {acceleration: emulated}}\n", "one", "two")
	one, two := hosts[0], hosts[1]
	if err := one.Stop(); err != nil {
		t.Fatal(err)
	}
	one.Env = append(one.Env, otherMachines(t)...)
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	only(t, hosts, []string{"one", "two"}, "one")
	b := one.newBox(t, bothy.SandboxCreate{Engine: "microvm", MemoryMB: 128, DiskMB: 128})
	b.sh("", "echo kept >/dev/shm/memory; echo content >/workspace/file")
	was := b.counts()()
	slept, err := one.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{Wait: bothy.DurableStore})
	if err != nil || slept.Durable != bothy.DurableStore {
		t.Fatalf("%+v %v", slept, err)
	}
	// Nothing gives the host time to upload more.
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Hosts.UpdateHost(t.Context(), "two", bothy.HostUpdate{State: bothy.HostUp}); err != nil {
		t.Fatal(err)
	}
	two.awaitHostLost(t, b.id)
	continues := func(when string) {
		t.Helper()
		if got := b.at(two).sh("", "kill -0 $(cat /tmp/pid) && cat /tmp/pid /dev/shm/memory /workspace/file"); got != was+"\nkept\ncontent" {
			t.Errorf("%s it has %q; its process was %s", when, got, was)
		}
	}
	sb, err := two.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if sb.Resumed == nil || sb.Resumed.Kind != bothy.SnapshotMemory {
		t.Fatalf("it was resumed as %+v", sb.Resumed)
	}
	continues("on the other host")
	own, has := one.machineBuilds(t), two.machineBuilds(t)
	if len(own) != 1 || len(has) != 2 {
		t.Fatalf("the host that was lost has %d builds, and the other %d", len(own), len(has))
	}
	for name, build := range own {
		fetched, ok := has[name]
		delete(has, name)
		if !ok {
			t.Fatalf("the other host has not fetched %s", name)
		}
		for _, two := range has {
			for _, f := range fetched.Files {
				for _, g := range two.Files {
					if (f.Place == "/qemu" || f.Place == "/kernel") && f.SHA256 == g.SHA256 {
						t.Errorf("both builds have the same %s: the test tests nothing", f.Place)
					}
				}
			}
		}
		if fetched.Size() != build.Size() {
			t.Errorf("the build has %d bytes, and %d after it was fetched", build.Size(), fetched.Size())
		}
	}

	// A running one is moved by the command.
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	program := must(testserver.Program())
	for _, host := range []string{"one", "two"} {
		if out, err := two.cli(t, program, "move", b.id, host); err != nil {
			t.Fatalf("to %s: %v: %s", host, err, out)
		}
		if on := sandboxesOn(t, two); on[host] != 1 {
			t.Errorf("the hosts have %v", on)
		}
		continues("after the move to " + host)
	}
}
