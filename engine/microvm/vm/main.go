package vm

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Where things are in the machine's first file system, which no sandbox sees.
const (
	lowerDir   = "/lower"
	guestDir   = "/guest"
	diskDir    = "/disk"
	upperDir   = diskDir + "/upper"
	workDir    = diskDir + "/work"
	sandboxDir = "/sandbox"
	cgroupDir  = "/cgroup"
)

// stageArg makes this program the last step before the guest.
const stageArg = "stage"

// plugTime is how long an attached device may take to appear.
const plugTime = 30 * time.Second

// Main is the whole program. It does not return.
func Main(args []string) {
	if len(args) > 1 && args[1] == stageArg {
		err := stage()
		fmt.Fprintln(os.Stderr, "stage:", err)
		os.Exit(1)
	}
	if args[0] == Modprobe {
		if err := modprobe(args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "modprobe:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "vminit is the first program of a virtual machine; it does nothing elsewhere")
		os.Exit(2)
	}
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(50)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	end(run())
}

// end logs the reason, and ends the machine.
func end(err error) {
	fmt.Fprint(os.Stderr, FormatFailure(err.Error()))
	for {
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
		time.Sleep(time.Second)
	}
}

// run boots the machine and serves the host until the guest has ended.
func run() error {
	for _, m := range []struct{ kind, to, data string }{
		{"devtmpfs", "/dev", ""}, {"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"cgroup2", cgroupDir, ""},
	} {
		if err := mount(m.kind, m.kind, m.to, 0, m.data); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s: %w", m.kind, err)
		}
	}
	if err := loadModules("/modules"); err != nil {
		return err
	}
	if err := reportSmallPieces(); err != nil {
		return err
	}
	ctl, err := openPort(PortCtl)
	if err != nil {
		return err
	}
	news, err := openPort(PortNews)
	if err != nil {
		return err
	}
	s := &supervisor{ctl: ctl, news: news}
	ended := make(chan error, 1)
	s.ended = func(err error) { ended <- err }
	go func() { ended <- s.serve() }()
	return <-ended
}

func mount(source, kind, to string, flags uintptr, data string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, to, kind, flags, data); err != nil {
		return err
	}
	return nil
}

// loadModules loads the files that a list names, in its order.
func loadModules(list string) error {
	b, err := os.ReadFile(list)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the kernel has all that is needed
	}
	if err != nil {
		return err
	}
	for path := range strings.FieldsSeq(string(b)) {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("load %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

// wait calls find until it finds something.
func wait(what string, find func() string) (string, error) {
	deadline := time.Now().Add(plugTime)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if found := find(); found != "" {
			return found, nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("the machine has no %s", what)
		}
		time.Sleep(pause)
	}
}

// openPort opens the port with a name. Reads and writes block a thread.
func openPort(name string) (*os.File, error) {
	path, err := wait("port "+name, func() string { return named("/sys/class/virtio-ports/*/name", name) })
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open("/dev/"+path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open port %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// disk returns the device of the disk with a name.
func disk(name string) (string, error) {
	d, err := wait("disk "+name, func() string { return named("/sys/block/*/serial", name) })
	return "/dev/" + d, err
}

// named returns the folder's name of the file that holds value.
func named(pattern, value string) string {
	files, _ := filepath.Glob(pattern)
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.TrimRight(string(b), "\n\x00") == value {
			return filepath.Base(filepath.Dir(f))
		}
	}
	return ""
}
