package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestKernelRevealsNothing(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{})
	asEachUser(t, func(t *testing.T, user string) {
		b.attack(user, "kernel.py").refused(t)
	})
	b.usable()
}

// With sudo a user becomes the same root as a process started as root.
func TestSudoGivesNoMoreThanRoot(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	const show = "grep ^Cap /proc/self/status"
	root, sudo := b.sh("root", show), b.sh("user", "sudo "+show)
	if root != sudo {
		t.Errorf("root has\n%s\nand sudo gives\n%s", root, sudo)
	}
	for _, want := range []string{"CapInh:\t0000000000000000\n", "CapBnd:\t00000000a80405fb\n"} {
		if !strings.Contains(root, want) {
			t.Errorf("root does not have %q:\n%s", want, root)
		}
	}
	for line := range strings.Lines(root) {
		_, mask, _ := strings.Cut(strings.TrimSpace(line), "\t")
		caps, err := strconv.ParseUint(mask, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		for name, bit := range map[string]int{"DAC_READ_SEARCH": 2, "NET_ADMIN": 12, "NET_RAW": 13, "SYS_MODULE": 16, "SYS_PTRACE": 19, "SYS_ADMIN": 21} {
			if caps&(1<<bit) != 0 {
				t.Errorf("root has CAP_%s: %s", name, line)
			}
		}
	}
}

func TestProcessOneCannotBeAttacked(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{})
	asEachUser(t, func(t *testing.T, user string) {
		var but []string
		if user == "root" {
			// The kernel ignores these requests.
			but = []string{"setpriority", "sched_setaffinity"}
		}
		b.attack(user, "init.py").refused(t, but...)
		b.attack(user, "init.py", "namespace").refused(t, but...)
	})
	b.usable()
}

// ownMounts are the mounts that a process may make in its own namespace.
var ownMounts = []string{
	"tmpfs", "tmpfs over /.bothy", "proc", "sysfs", "devtmpfs", "devpts", "bind /", "fsopen",
	"remount /.bothy writable", "remount / read-only",
}

func TestMounting(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{})
	const tables = "cat /proc/mounts; sha256sum /.bothy/guest"
	before := b.sh("root", tables)
	asEachUser(t, func(t *testing.T, user string) {
		b.attack(user, "mounts.py").refused(t)
	})
	// A process may mount in its own namespace, but must not reach other kinds of file system or the
	// files of process 1.
	asEachUser(t, func(t *testing.T, user string) {
		b.attack(user, "mounts.py", "namespace").refused(t, ownMounts...)
	})
	if after := b.sh("root", tables); after != before {
		t.Errorf("the sandbox has the mounts\n%s\nand had\n%s", after, before)
	}
	b.usable()
}

func TestGuestCannotBeReplaced(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	before := b.sh("root", "sha256sum /.bothy/guest")
	asEachUser(t, func(t *testing.T, user string) {
		b.attack(user, "guestfile.py").refused(t)
	})
	if _, err := b.s.Files.Write(b.ctx, b.id, "/.bothy/guest", strings.NewReader("x"), bothy.WriteOptions{User: "root"}); bothy.ErrorCode(err) != bothy.CodePermission {
		t.Errorf("writing the guest through the API: %v", err)
	}
	if err := b.s.Files.Remove(b.ctx, b.id, "/.bothy/guest", "root"); bothy.ErrorCode(err) != bothy.CodePermission {
		t.Errorf("removing the guest through the API: %v", err)
	}
	if after := b.sh("root", "sha256sum /.bothy/guest"); after != before {
		t.Errorf("the guest program was %s and is %s", before, after)
	}
	b.usable()
}

// hostSettings are files of the host's kernel that an attacker might want to change.
var hostSettings = []string{
	"/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/panic",
	"/proc/sys/kernel/sysrq", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches", "/proc/sys/vm/swappiness",
	"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/tcp_sack", "/proc/sys/fs/file-max", "/proc/sys/kernel/pid_max",
}

func readSettings() string {
	var all strings.Builder
	for _, f := range hostSettings {
		b, _ := os.ReadFile(f)
		all.WriteString(f + " " + string(b))
	}
	return all.String()
}

// writable reports whether a user may write a file of the sandbox's kernel. Root may tune the sandbox's
// network and processes.
func writable(path, user string) bool {
	switch name := filepath.Base(path); {
	case strings.HasPrefix(path, "/dev/"):
		return slices.Contains([]string{"null", "zero", "random", "urandom", "ptmx", "1:3", "1:5", "1:8", "1:9"}, name)
	case user == "user":
		return false
	case strings.HasPrefix(path, "/proc/sys/"):
		return strings.HasPrefix(path, "/proc/sys/net/ipv4/") || name == "ptrace_scope" || name == "mount-max"
	default:
		return name == "oom_score_adj" || name == "coredump_filter"
	}
}

func TestWritingToKernelFiles(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{})
	before := readSettings()
	asEachUser(t, func(t *testing.T, user string) {
		o := b.attack(user, "kernelfiles.py")
		if n, _ := strconv.Atoi(o["tried"]); n < 100 {
			t.Errorf("only %d files were tried", n)
		}
		for path, outcome := range o {
			if outcome == "done" && !writable(path, user) {
				t.Errorf("%s could write to %s", user, path)
			}
		}
	})
	if after := readSettings(); after != before {
		t.Errorf("the host has\n%s\nand had\n%s", after, before)
	}
	b.usable()
}
