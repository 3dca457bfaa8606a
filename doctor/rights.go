package doctor

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// neededCapabilities are those that the server uses.
var neededCapabilities = []struct {
	bit  uint
	name string
}{
	{unix.CAP_SYS_ADMIN, "SYS_ADMIN"},
	{unix.CAP_NET_ADMIN, "NET_ADMIN"},
	{unix.CAP_SYS_PTRACE, "SYS_PTRACE"},
	{unix.CAP_SYS_CHROOT, "SYS_CHROOT"},
	{unix.CAP_SETUID, "SETUID"},
	{unix.CAP_SETGID, "SETGID"},
}

// checkTracing checks what a sandbox's kernel needs to intercept system calls.
func (h *Host) checkTracing(ctx context.Context) Result {
	if scope, err := readInt(filepath.Join(h.proc, "sys/kernel/yama/ptrace_scope")); err == nil && scope >= 3 {
		return fail("Tracing is switched off for good on this host (ptrace_scope is 3).",
			"Set kernel.yama.ptrace_scope to 2 or less and restart the host.")
	}
	if actions, err := os.ReadFile(filepath.Join(h.proc, "sys/kernel/seccomp/actions_avail")); err != nil || !strings.Contains(string(actions), "trap") {
		return fail("This kernel has no seccomp filters.", "Use a kernel built with CONFIG_SECCOMP_FILTER.")
	}
	if missing := h.missingCapabilities(); len(missing) > 0 {
		return fail(fmt.Sprintf("This process lacks the capabilities %s.", strings.Join(missing, ", ")),
			"Run it as root. In a container, add these capabilities or run it privileged.")
	}
	if err := traceChild(ctx); err != nil {
		return fail(fmt.Sprintf("A child process cannot be traced: %v.", err),
			"In a container, allow ptrace: run it with seccomp unconfined.")
	}
	return ok("Child processes can be traced, and seccomp filters work.")
}

func (h *Host) missingCapabilities() []string {
	set, err := h.effectiveCapabilities()
	if err != nil {
		return []string{"(cannot be read: " + err.Error() + ")"}
	}
	var missing []string
	for _, c := range neededCapabilities {
		if set&(1<<c.bit) == 0 {
			missing = append(missing, c.name)
		}
	}
	return missing
}

func (h *Host) effectiveCapabilities() (set uint64, err error) {
	f, err := os.Open(filepath.Join(h.proc, "self/status"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for scan := bufio.NewScanner(f); scan.Scan(); {
		if _, err := fmt.Sscanf(scan.Text(), "CapEff: %x", &set); err == nil {
			return set, nil
		}
	}
	return 0, fmt.Errorf("no CapEff in %s", f.Name())
}

// traceChild starts a child that is traced from its first instruction.
func traceChild(ctx context.Context) error {
	// The kernel requires all calls to come from the thread that traces.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := probeCommand(ctx, "trace")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, 0, nil); err != nil {
		return err
	}
	if !status.Stopped() {
		return fmt.Errorf("it did not stop (wait status %#x)", uint32(status))
	}
	if err := syscall.PtraceDetach(cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	return cmd.Wait()
}
