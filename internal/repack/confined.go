package repack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// arg makes this program repack an archive, and nothing else.
const arg = "repack-archive"

// nobody are users for the process that repacks: ids that are no account's and no sandbox's. The
// second is for hosts that are themselves containers, with 65,536 ids.
var nobody = []int{1_901_000_000, 60_001}

const (
	// maxOutput limits what comes back, and maxMemory the memory of the process.
	maxOutput = maxUnpacked + maxFiles*8<<10
	maxMemory = 2 << 30
	// maxSeconds limits its time on a processor.
	maxSeconds = 120
)

// Confined is Here in a process of its own: a user of no other program, in namespaces without a
// network and with an empty read-only root, without capabilities and with no way to gain any. It
// has the archive, and the pipe for the tar. The program must call RunConfined.
func Confined(ctx context.Context, file *os.File, folder string, w io.Writer) error {
	var err error
	for _, user := range nobody {
		out := &sink{w: w, left: maxOutput}
		cmd := command(ctx, user, file, folder)
		complaint := &head{}
		cmd.Stdout, cmd.Stderr = out, complaint
		if err = cmd.Start(); errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
			continue // the id is not one of this host's
		}
		if err != nil {
			break
		}
		err = cmd.Wait()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case out.err != nil:
			return out.err
		case err != nil:
			return fmt.Errorf("the archive is refused: %s (%w)", strings.TrimSpace(complaint.String()), err)
		}
		return nil
	}
	return fmt.Errorf("the process that repacks archives cannot be started: %w", err)
}

func command(ctx context.Context, user int, file *os.File, folder string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", arg, folder)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.WaitDelay = "/", []string{"GOMAXPROCS=1"}, file, time.Second
	ids := []syscall.SysProcIDMap{{HostID: user, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{}, UidMappings: ids, GidMappings: ids, Setsid: true,
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	return cmd
}

// IsConfined reports whether this process was started by Confined.
func IsConfined() bool { return len(os.Args) == 3 && os.Args[1] == arg && os.Getpid() == 1 }

// RunConfined is the process that Confined starts. It returns its exit code.
func RunConfined() int {
	err := confine()
	if err == nil {
		err = Here(context.Background(), os.Stdin, os.Args[2], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// confine gives up everything but the open files. The user namespace has already taken the host's
// rights away.
func confine() error {
	runtime.LockOSThread()
	const root = "/proc" // it exists everywhere
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("none", root, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=555"); err != nil {
		return fmt.Errorf("mount an empty root: %w", err)
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for limit, n := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_AS: maxMemory, unix.RLIMIT_CPU: maxSeconds} {
		if err := unix.Setrlimit(limit, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("set a limit: %w", err)
		}
	}
	return dropRights()
}

func dropRights() error {
	for c := uintptr(0); c < 64; c++ {
		if err := everywhere(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != 0 && err != unix.EINVAL {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	if err := everywhere(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != 0 {
		return fmt.Errorf("forbid new rights: %w", err)
	}
	if err := everywhere(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&capHeader)), uintptr(unsafe.Pointer(&noCaps)), 0); err != 0 {
		return fmt.Errorf("give capabilities up: %w", err)
	}
	return nil
}

// These do not move, as the kernel reads them.
var (
	capHeader = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	noCaps    [2]unix.CapUserData
)

// everywhere makes a system call in all threads, or in builds with C, which only tests use, in
// this one.
func everywhere(trap, a, b, c uintptr) syscall.Errno {
	_, _, err := syscall.AllThreadsSyscall6(trap, a, b, c, 0, 0, 0)
	if err == unix.ENOTSUP {
		_, _, err = syscall.RawSyscall6(trap, a, b, c, 0, 0, 0)
	}
	return err
}

// A sink is a writer that keeps its first error, and takes at most left bytes.
type sink struct {
	w    io.Writer
	left int64
	err  error
}

// Write implements io.Writer.
func (s *sink) Write(p []byte) (n int, err error) {
	if s.left -= int64(len(p)); s.left < 0 {
		err = errors.New("what is in the archive is too large")
	} else {
		n, err = s.w.Write(p)
	}
	if s.err == nil {
		s.err = err
	}
	return n, err
}

// A head keeps the beginning of what is written.
type head struct{ bytes.Buffer }

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	_, _ = h.Buffer.Write(p[:max(0, min(len(p), 500-h.Len()))])
	return len(p), nil
}
