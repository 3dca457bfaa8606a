package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// guestPath is where the sandbox sees the guest.
const guestPath = "/.bothy/guest"

// stageSocket is the descriptor on which the starter of the stage listens.
const stageSocket = 3

// stage makes the sandbox's view of the machine and becomes the guest. It returns
// only when it fails.
func stage() error {
	runtime.LockOSThread()
	unix.CloseOnExec(stageSocket)
	err := becomeGuest()
	_ = unix.Sendmsg(stageSocket, []byte(err.Error()), nil, nil, 0)
	return err
}

// becomeGuest returns only on error: on success, the guest has replaced it.
func becomeGuest() error {
	if len(os.Args) != 5 {
		return errors.New("the stage needs a host name, a number of processes and a size of memory")
	}
	processes, _ := strconv.ParseUint(os.Args[3], 10, 64)
	memory, _ := strconv.ParseInt(os.Args[4], 10, 64)
	// A private view, from which the machine's own part is removed.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare the cgroup: %w", err)
	}
	// This process becomes the guest, which is not among those that are stopped.
	if err := write(guestGroup+"/cgroup.procs", "0"); err != nil {
		return fmt.Errorf("enter the guest's cgroup: %w", err)
	}
	if err := unix.Sethostname([]byte(os.Args[2])); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := mountSpecial(memory); err != nil {
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
	// The guest's output goes where the kernel's messages go.
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

// mountSpecial mounts the special file systems of a root file system.
func mountSpecial(memory int64) error {
	share := func(part int64) string { return fmt.Sprintf(",size=%dk", memory/part>>10) }
	for _, m := range []struct {
		kind, to string
		flags    uintptr
		data     string
	}{
		{"proc", "proc", noexec, ""},
		{"sysfs", "sys", noexec, ""},
		{"cgroup2", "sys/fs/cgroup", noexec, ""},
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
	return showModules()
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
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := unix.Mknod(path, d.kind|d.mode, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("make /dev/%s: %w", d.name, err)
		}
		if err := os.Chmod(path, fs.FileMode(d.mode)); err != nil {
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

// enter makes the sandbox's root the root, over the machine's own.
func enter() error {
	for _, dir := range []string{cgroupDir, "/dev", "/sys", "/proc", guestDir, lowerDir, diskDir, moduleDir} {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && (dir != moduleDir || err != unix.EINVAL && err != unix.ENOENT) {
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
