package doctor

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// NewHost returns this host, for a server with these settings.
func NewHost(home, templates, listen string) *Host {
	return &Host{
		Home: home, Templates: templates, Listen: listen,
		proc: "/proc", cgroups: "/sys/fs/cgroup",
		euid: os.Geteuid(), kernel: kernelRelease, lookPath: exec.LookPath, now: time.Now,
	}
}

func (h *Host) checkRoot(context.Context) Result {
	if h.euid != 0 {
		return fail(fmt.Sprintf("This is user %d, and only root can give sandboxes their namespaces and limits.", h.euid),
			"Run it as root, as in: sudo bothy up")
	}
	return ok("Running as root.")
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func (h *Host) checkKernel(context.Context) Result {
	release := h.kernel()
	major, minor, err := parseKernel(release)
	switch {
	case err != nil:
		return warn(fmt.Sprintf("The kernel's version %q cannot be read.", release), "Use Linux 5.4 or newer.")
	case major < 4 || major == 4 && minor < 15:
		return fail(fmt.Sprintf("Linux %s is too old.", release), "Use Linux 5.4 or newer.")
	case major < 5 || major == 5 && minor < 4:
		return warn(fmt.Sprintf("Linux %s is old, and Bothy is not tested on it.", release), "Use Linux 5.4 or newer.")
	}
	return ok(fmt.Sprintf("Linux %s.", release))
}

func parseKernel(release string) (major, minor int, err error) {
	_, err = fmt.Sscanf(release, "%d.%d", &major, &minor)
	return major, minor, err
}

func (h *Host) checkUserNamespaces(context.Context) Result {
	n, err := readInt(filepath.Join(h.proc, "sys/user/max_user_namespaces"))
	switch {
	case err != nil:
		return fail("This kernel has no user namespaces.", "Use a kernel built with CONFIG_USER_NS.")
	case n <= 0:
		return fail("User namespaces are switched off.", "Run: sysctl -w user.max_user_namespaces=15000")
	}
	return ok(fmt.Sprintf("Up to %d user namespaces.", n))
}

func readInt(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// The memory that a server with a few sandboxes needs.
const (
	leastMemoryMB = 256
	goodMemoryMB  = 1024
)

func (h *Host) checkMemory(context.Context) Result {
	total, available, err := h.memory()
	if err != nil {
		return warn("The host's memory cannot be read.", "See that /proc is mounted.")
	}
	detail := fmt.Sprintf("%d MiB of %d MiB are available.", available, total)
	switch {
	case available < leastMemoryMB:
		return fail(detail, "Free some memory: the server alone needs more than that.")
	case available < goodMemoryMB:
		return warn(detail, "Free some memory, or create few and small sandboxes.")
	}
	return ok(detail)
}

// memory returns values in MiB.
func (h *Host) memory() (total, available int64, err error) {
	f, err := os.Open(filepath.Join(h.proc, "meminfo"))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	for scan := bufio.NewScanner(f); scan.Scan(); {
		var kb int64
		if _, err := fmt.Sscanf(scan.Text(), "MemTotal: %d kB", &kb); err == nil {
			total = kb >> 10
		}
		if _, err := fmt.Sscanf(scan.Text(), "MemAvailable: %d kB", &kb); err == nil {
			available = kb >> 10
		}
	}
	if total == 0 {
		return 0, 0, fmt.Errorf("no MemTotal in %s", f.Name())
	}
	return total, available, nil
}

// oldestNow is a time that has certainly passed.
var oldestNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (h *Host) checkClock(context.Context) Result {
	now := h.now().UTC()
	if now.Before(oldestNow) {
		return fail(fmt.Sprintf("The clock says %s, which is in the past.", now.Format(time.RFC3339)),
			"Set the clock: keys and certificates would not be valid yet.")
	}
	state, err := unix.Adjtimex(&unix.Timex{})
	if err == nil && state == unix.TIME_ERROR {
		return warn("The clock is not kept right by anything.", "Run a time service such as chrony or systemd-timesyncd.")
	}
	return ok(fmt.Sprintf("It is %s.", now.Format(time.RFC3339)))
}
