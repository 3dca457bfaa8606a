package main

import (
	"errors"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/abi"
	"github.com/bothy-dev/bothy/guest/account"
	"github.com/bothy-dev/bothy/guest/agent"
)

// keptCapabilities are those that root in the sandbox needs for sudo, apt and the
// like. The others would give it access to process 1 or to the kernel.
var keptCapabilities = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID,
	unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT, unix.CAP_MKNOD,
	unix.CAP_AUDIT_WRITE, unix.CAP_SETFCAP,
}

// becomeInit prepares the machine as process 1 does.
func becomeInit(opt *agent.Options) {
	logged("survive signals", surviveSignals())
	syscall.Umask(0o022)
	logged("uncover /tmp", uncoverTmp("/tmp"))
	if os.Getenv(abi.EnvBound) == "" {
		logged("drop capabilities", dropCapabilities())
	}
	if err := dropInheritable(); err != nil {
		log.Fatalf("drop inheritable capabilities: %v", err) // commands would have them
	}
	if os.Getenv(abi.EnvSpared) == "" {
		logged("block signals to process 1", blockSignalsToInit())
	}
	logged("hide from ptrace", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	logged("copy the image's /run", fillRun("/run"))
	logged("complete the root file system", addMissingFiles("/"))
	logged("make "+opt.Cwd, makeWorkspace(opt.Cwd, opt.User))
	opt.Commands.Cgroup = os.Getenv(abi.EnvCommandsCgroup)
	opt.SetHostname = func(name string) error { return syscall.Sethostname([]byte(name)) }
	opt.SetClock = setClock
}

func logged(what string, err error) {
	if err != nil {
		log.Printf("%s: %v", what, err)
	}
}

// surviveSignals keeps signals from ending or stopping process 1. Signals on which the
// runtime would end or stop are caught rather than ignored, since commands would inherit
// that. The runtime itself ignores signals of faults that a process has sent. All others
// have no effect anyway.
func surviveSignals() error {
	signal.Ignore(syscall.SIGILL, syscall.SIGTRAP, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSTKFLT, syscall.SIGSYS)
	return errors.Join(leaveChildren(), catch(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGTERM,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU))
}

// leaveChildren removes the runtime's handler of SIGCHLD, which would interrupt a thread
// whenever a child ends: this process waits for children with system calls.
func leaveChildren() error { return sigaction{}.set(syscall.SIGCHLD) }

// sigaction is struct kernel_sigaction. The zero value is the default action.
type sigaction struct {
	handler, flags, restorer, mask uintptr
}

// set installs the action without the runtime's knowledge.
func (a sigaction) set(s syscall.Signal) error {
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&a)), 0, unsafe.Sizeof(a.mask), 0, 0)
	if e != 0 {
		return os.NewSyscallError("rt_sigaction", e)
	}
	return nil
}

// uncoverTmp unmounts the memory file system that gVisor mounts over an empty
// /tmp: temporary files belong on the sandbox's disk, which has more room and its
// own limit.
func uncoverTmp(path string) error {
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return err // EINVAL: nothing is mounted there
	}
	if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(path, 0o777|fs.ModeSticky)
}

// dropCapabilities removes capabilities from the bounding set of all threads, so
// that children cannot gain them by becoming root.
func dropCapabilities() error {
	for c := range unix.CAP_LAST_CAP + 1 {
		if slices.Contains(keptCapabilities, c) {
			continue
		}
		_, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0)
		if e != 0 && e != unix.EINVAL { // EINVAL: this kernel has no such capability
			return errors.New("capability " + strconv.Itoa(c) + ": " + e.Error())
		}
	}
	return nil
}

// addMissingFiles creates files that every Debian has and an image or an empty /run may
// lack. Existing ones are unchanged.
func addMissingFiles(root string) error {
	_ = os.Symlink("../proc/self/mounts", filepath.Join(root, "etc/mtab"))
	lock := filepath.Join(root, "run/lock") // the target of /var/lock
	if err := os.Mkdir(lock, 0o777); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return os.Chmod(lock, 0o777|fs.ModeSticky)
}

// makeWorkspace creates the working directory of commands, unless it exists.
func makeWorkspace(path, user string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	u, err := account.New("/etc/passwd", "/etc/group").Lookup(user)
	if err != nil {
		if bothy.ErrorCode(err) == bothy.CodeUserNotFound {
			return nil // the image has no user but root
		}
		return err
	}
	return os.Chown(path, int(u.UID), int(u.GID))
}

// setClock sets the machine's clock, if it has its own.
func setClock(t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil && err != unix.EPERM {
		return err
	}
	return nil
}

// closeOnSignal ends an agent that is not process 1.
func closeOnSignal(a *agent.Agent) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	<-caught
	_ = a.Close()
}
