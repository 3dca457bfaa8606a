package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// probeVariable makes this program a probe: a short-lived child that does one thing to itself
// which the parent must not do.
const probeVariable = "BOTHY_DOCTOR_PROBE"

// IsProbe reports whether this process was started as a probe. Every program that runs checks
// asks this first, and if so exits with RunProbe.
func IsProbe() bool { return os.Getenv(probeVariable) != "" }

// RunProbe runs the probe that this process was started for and returns its exit code.
func RunProbe() int {
	var err error
	switch what := os.Getenv(probeVariable); what {
	case "tap":
		err = makeTap()
	case "trace":
	default:
		err = fmt.Errorf("unknown probe %q", what)
	}
	if err != nil {
		fmt.Fprint(os.Stderr, err)
		return 1
	}
	return 0
}

// probeCommand returns the command that runs a probe.
func probeCommand(ctx context.Context, what string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = os.Args[:1]
	cmd.Env = append(os.Environ(), probeVariable+"="+what)
	return cmd
}

func (h *Host) checkTap(ctx context.Context) Result {
	cmd := probeCommand(ctx, "tap")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		why := said.String()
		if why == "" {
			why = err.Error()
		}
		return fail(fmt.Sprintf("A tap device in a new network namespace cannot be made: %s.", why), tapFix(h.euid))
	}
	return ok("A tap device was made in a new network namespace.")
}

func tapFix(euid int) string {
	if euid != 0 {
		return "Run it as root."
	}
	return "Run: modprobe tun. In a container, give it /dev/net/tun and the capabilities NET_ADMIN and SYS_ADMIN."
}

// makeTap makes a tap in the namespace of this process. It is removed when the descriptor is
// closed.
func makeTap() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open /dev/net/tun: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("bothy0")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return fmt.Errorf("cannot make the device: %w", err)
	}
	return nil
}
