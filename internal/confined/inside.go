package confined

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
)

// run is the process that Do starts. It returns its exit code.
func run(t Task) int {
	if err := t.run(); err != nil {
		_, _ = os.Stderr.Write(explain(err))
		return 1
	}
	return 0
}

func (t Task) run() error {
	if t.Run == nil {
		return errors.New("there is no such task")
	}
	// Whatever runs out of memory, this process ends first.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	if err := confine(); err != nil {
		return err
	}
	if err := t.limit(); err != nil {
		return err
	}
	if err := dropRights(); err != nil {
		return err
	}
	talk := os.NewFile(3, "")
	unix.CloseOnExec(3)
	a := &account{c: struct {
		io.Reader
		io.Writer
	}{talk, talk}}
	args, err := a.greet()
	if err != nil {
		return fmt.Errorf("read the arguments: %w", err)
	}
	return t.Run(bothy.WithMemoryAccount(context.Background(), a), args, os.Stdin, os.Stdout)
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
	return os.Chdir("/")
}

// limit limits what this process takes of the host. Its address space has room for what the Go
// runtime reserves without using it, and for the file that it reads.
func (t Task) limit() error {
	const reserved = 2 << 30 // it takes 1.2 GB
	space := t.Memory + reserved
	if info, err := os.Stdin.Stat(); err == nil && info.Mode().IsRegular() {
		space += info.Size()
	}
	debug.SetMemoryLimit(t.Memory / 4 * 3) // collects garbage rather than fail
	limits := map[int]int64{unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_AS: space, unix.RLIMIT_DATA: t.Memory, unix.RLIMIT_CPU: t.Seconds}
	if Raced {
		delete(limits, unix.RLIMIT_AS)
		delete(limits, unix.RLIMIT_DATA)
	}
	for limit, n := range limits {
		if err := unix.Setrlimit(limit, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)}); err != nil {
			return fmt.Errorf("set a limit: %w", err)
		}
	}
	return nil
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
