package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// guestPath is where the sandbox sees the guest.
const guestPath = "/.bothy/guest"

// commandCaps are what the commands of root may do inside, and guestCaps what the
// guest may do beside.
var (
	commandCaps = []int{
		unix.CAP_AUDIT_WRITE, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_MKNOD,
		unix.CAP_NET_BIND_SERVICE, unix.CAP_SETFCAP, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_SETUID, unix.CAP_SYS_CHROOT,
	}
	guestCaps = append([]int{
		unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_ADMIN, unix.CAP_SYS_NICE, unix.CAP_SYS_PTRACE, unix.CAP_SYS_RESOURCE, unix.CAP_SYS_TIME,
	}, commandCaps...)
)

// stageSocket is the descriptor at which the one who started the stage listens.
const stageSocket = 3

// stage makes the sandbox's view of the machine and becomes the guest. It returns
// only when it fails.
func stage() error {
	runtime.LockOSThread()
	unix.CloseOnExec(stageSocket)
	if err := becomeGuest(); err != nil {
		_ = unix.Sendmsg(stageSocket, []byte(err.Error()), nil, nil, 0)
		return err
	}
	return nil
}

func becomeGuest() error {
	if len(os.Args) != 5 {
		return errors.New("the stage needs a host name, a number of processes and a size of memory")
	}
	processes, _ := strconv.ParseUint(os.Args[3], 10, 64)
	memory, _ := strconv.ParseInt(os.Args[4], 10, 64)
	// A private view, of which the machine's own part goes away.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare the cgroup: %w", err)
	}
	if err := unix.Sethostname([]byte(os.Args[2])); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := furnish(memory); err != nil {
		return err
	}
	if err := enter(); err != nil {
		return fmt.Errorf("enter the sandbox: %w", err)
	}
	for what, l := range map[int]unix.Rlimit{
		unix.RLIMIT_NPROC: {Cur: processes, Max: processes}, unix.RLIMIT_NOFILE: {Cur: 1024, Max: 1 << 20}, unix.RLIMIT_CORE: {},
	} {
		if err := unix.Setrlimit(what, &l); err != nil {
			return fmt.Errorf("set a limit: %w", err)
		}
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	gate, err := installGate()
	if err != nil {
		return fmt.Errorf("install the gate: %w", err)
	}
	if err := unix.Sendmsg(stageSocket, []byte{0}, unix.UnixRights(gate), nil, 0); err != nil {
		return err
	}
	if err := setCapabilities(); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	// What the guest says goes where the kernel's words go.
	for fd := range 2 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return fmt.Errorf("run the guest: %w", unix.Exec(guestPath, []string{guestPath}, os.Environ()))
}

// stageResult returns the gate's descriptor when the stage has become the guest.
func stageResult(from *os.File) (*os.File, error) {
	var gate *os.File
	for {
		buf, oob := make([]byte, 1024), make([]byte, unix.CmsgSpace(4))
		n, oobn, _, _, err := unix.Recvmsg(int(from.Fd()), buf, oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		case n == 0 && gate != nil:
			return gate, nil
		case n == 0:
			return nil, errors.New("the stage before the guest ended")
		case oobn == 0:
			return nil, badImage{errors.New(string(buf[:n]))}
		}
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(msgs) != 1 {
			return nil, errors.New("the stage sent no gate")
		}
		fds, err := unix.ParseUnixRights(&msgs[0])
		if err != nil || len(fds) != 1 {
			return nil, errors.New("the stage sent no gate")
		}
		gate = os.NewFile(uintptr(fds[0]), "gate")
	}
}

const (
	plain  = unix.MS_NOSUID | unix.MS_NODEV
	noexec = plain | unix.MS_NOEXEC
)

// furnish mounts what a root file system holds beside files.
func furnish(memory int64) error {
	share := func(part int64) string { return fmt.Sprintf(",size=%dk", memory/part>>10) }
	for _, m := range []struct {
		kind, to string
		flags    uintptr
		data     string
	}{
		{"proc", "proc", noexec, ""},
		{"sysfs", "sys", noexec | unix.MS_RDONLY, ""},
		{"tmpfs", "dev", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=755,size=64k"},
		{"devpts", "dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5"},
		{"tmpfs", "dev/shm", plain, "mode=1777" + share(2)},
		{"mqueue", "dev/mqueue", noexec, ""},
		{"tmpfs", "run", plain, "mode=755" + share(8)},
	} {
		if err := mount(m.kind, m.kind, filepath.Join(sandboxDir, m.to), m.flags, m.data); err != nil {
			return badImage{fmt.Errorf("mount /%s: %w", m.to, err)}
		}
	}
	if err := bind(guestDir, sandboxDir+filepath.Dir(guestPath), plain|unix.MS_RDONLY); err != nil {
		return fmt.Errorf("mount the guest: %w", err)
	}
	if err := makeDevices(sandboxDir + "/dev"); err != nil {
		return err
	}
	return coverProc(sandboxDir + "/proc")
}

func bind(from, to string, flags uintptr) error {
	if st, err := os.Stat(from); err == nil && st.IsDir() {
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
}

func makeDevices(dir string) error {
	for _, d := range devices {
		path := filepath.Join(dir, d.name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("make /dev/%s: %w", d.name, err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// coverProc takes away what root inside could change the kernel with, or read it by.
func coverProc(proc string) error {
	for _, name := range []string{"sys", "irq", "bus", "fs", "sysrq-trigger"} {
		path := filepath.Join(proc, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover /proc/%s: %w", name, err)
		}
		if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|noexec, ""); err != nil {
			return fmt.Errorf("cover /proc/%s: %w", name, err)
		}
	}
	for _, name := range []string{"kcore", "kmsg", "keys", "key-users", "timer_list", "kallsyms", "modules"} {
		path := filepath.Join(proc, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := unix.Mount(sandboxDir+"/dev/null", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover /proc/%s: %w", name, err)
		}
	}
	return nil
}

// enter makes the sandbox's root the root, over the machine's own.
func enter() error {
	for _, dir := range []string{cgroupDir, "/dev", "/sys", "/proc", guestDir, lowerDir, diskDir} {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	if err := os.Chdir(sandboxDir); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

// setCapabilities leaves to this thread what the guest may do. What is inheritable
// passes the bounding set; the guest gives that up before it starts any command.
func setCapabilities() error {
	var bounding, own [2]uint32
	for _, c := range commandCaps {
		bounding[c/32] |= 1 << (c % 32)
	}
	for _, c := range guestCaps {
		own[c/32] |= 1 << (c % 32)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		data[i] = unix.CapUserData{Effective: own[i], Permitted: own[i], Inheritable: own[i]}
	}
	if _, _, e := syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0); e != 0 {
		return e
	}
	for c := 0; c < 64; c++ {
		if bounding[c/32]&(1<<(c%32)) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL {
			return err
		}
	}
	return nil
}
