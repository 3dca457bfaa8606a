package gvisor

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"
	"gvisor.dev/gvisor/pkg/control/server"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/gvisor/driver"
	"github.com/bothy-dev/bothy/engine/gvisor/launcher"
	"github.com/bothy-dev/bothy/engine/gvisor/processor"
	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
	"github.com/bothy-dev/bothy/engine/process"
	"github.com/bothy-dev/bothy/engine/sysfile"
)

// spawn starts the sentry process and returns when it waits for commands, with the pipe on which
// it later reports that its process 1 listens. The library could do this itself (sandbox.New),
// but not inside a v1 cgroup: moving a process afterwards, with everything it has started by
// then, costs as much as the rest of the start.
func (e *Engine) spawn(p *preparedSentry, spec bothy.MachineSpec, ns *os.File) (_ *sentry, notify *os.File, err error) {
	if err := prepareOnce(); err != nil {
		return nil, nil, err
	}
	s := spawning{off: e.off, masked: e.masked}
	defer s.close()
	if notify, err = s.arguments(p.sentry, p.name, spec, p.dir); err != nil {
		return nil, nil, err
	}
	undo := cleanup.Make(func() { notify.Close() })
	defer undo.Clean()
	pid, err := s.start(p.sentry.path, p.group, ns, p.uid)
	if err != nil {
		return nil, nil, fmt.Errorf("start the sentry: %w", err)
	}
	s.close() // so that the sentry's end ends the pipe
	if _, err := io.ReadFull(notify, make([]byte, 1)); err != nil {
		return nil, nil, startFailure(process.End(pid), p.dir)
	}
	undo.Release()
	return &sentry{name: p.name, socket: socketPath(p.dir, p.name), pid: pid}, notify, nil
}

// startFailure returns why a sentry ended before it was ready.
func startFailure(status unix.WaitStatus, dir string) error {
	if words := panicOutput(dir); words != "" {
		return fmt.Errorf("the sentry ended before it was ready (%s)", words)
	}
	// See launcher.Confine. A sentry that gives up exits with 128.
	if n := syscall.Errno(status.ExitStatus()); status.Exited() && 0 < n && n < 127 {
		return fmt.Errorf("confine the sentry: %w", n)
	}
	return fmt.Errorf("the sentry ended before it was ready (status %#x)", uint32(status))
}

func socketPath(dir, name string) string { return filepath.Join(dir, "runsc-"+name+".sock") }

// prepareOnce prepares this process for starting sentries: they inherit none of its files, but
// its right to lock memory, which the library requires. They also inherit the size of the
// descriptor table: if that were too small for the highest number that the library uses, growing
// it in a process with many threads would delay the sentry by some milliseconds.
var prepareOnce = sync.OnceValue(func() error {
	if err := closeOnExec(); err != nil {
		return err
	}
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited) // only for speed
	if off, err := tuning.Own(); err != nil || off[tuning.Descriptors] {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	_, err = unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, highestFD)
	return err
})

// keepFiles makes sentries inherit none of this process's files. The library opens sockets on a
// sandbox's network device that other sentries would inherit, and closes them at garbage
// collection; the last to close one waits for some milliseconds. If the host's kernel is too old,
// the sentry closes them.
func keepFiles() { _ = unix.CloseRange(firstFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) }

// firstFD comes after the standard files.
const firstFD = 3

// closeOnExec makes programs that this process starts inherit none of the files that are open now.
func closeOnExec() error {
	open, err := os.ReadDir("/proc/self/fd")
	for _, f := range open {
		if fd, err := strconv.Atoi(f.Name()); err == nil {
			unix.CloseOnExec(fd)
		}
	}
	return err
}

// highestFD is the highest descriptor that the library uses in a sentry.
const highestFD = launcher.ConfineHighest

// spawning is a sentry that is being started.
type spawning struct {
	driver.Prepared
	files  []*os.File // from firstFile on
	off    tuning.Off
	masked []string
}

func (s *spawning) close() {
	for _, f := range s.files {
		f.Close()
	}
	s.files = nil
}

// open adds a file that it opens.
func (s *spawning) open(path string, mode int) error {
	f, err := os.OpenFile(path, mode, 0o644)
	if err == nil {
		s.files = append(s.files, f)
	}
	return err
}

// firstFile comes after the standard files, which are the null device, and those of
// launcher.Confine's program.
const firstFile = launcher.ConfineFirst

// roles says what each file is for, in the same order.
func roles(spec bothy.MachineSpec) []driver.Role {
	all := []driver.Role{driver.RolePanicLog, driver.RoleRoot, driver.RoleGuest, driver.RoleFilestore}
	if spec.FilesTar != "" {
		all = append(all, driver.RoleFilesTar)
	}
	return append(all, driver.RoleSpec, driver.RoleControl, driver.RoleNull, driver.RoleNull, driver.RoleNull, driver.RoleReady)
}

// arguments asks the sentry's driver how to start it, and opens its files. It returns the end of
// the pipe on which the sentry reports that it is ready.
func (s *spawning) arguments(sentry program, name string, spec bothy.MachineSpec, dir string) (notify *os.File, err error) {
	if sentry.other {
		s.off = nil // an older driver may not know these names
	}
	s.Prepared, err = sentry.prepare(driver.Launch{
		Name: name, Dir: dir, RootFS: spec.RootFS, Guest: spec.Guest, Hostname: spec.Hostname, Limits: spec.Limits,
		Files: roles(spec), FirstFD: firstFile, Patched: sentry.library.Patched, Off: s.off, CPUFeatures: s.masked,
	})
	if err != nil {
		return nil, err
	}
	if err := writeBundle(dir, s.Spec); err != nil {
		return nil, err
	}
	if err := s.open(filepath.Join(dir, driver.PanicLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND); err != nil {
		return nil, err
	}
	images, err := openImages(spec, filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, images...)
	if spec.FilesTar != "" {
		if err := s.open(spec.FilesTar, os.O_RDONLY); err != nil {
			return nil, err
		}
	}
	if err := s.open(filepath.Join(dir, specFile), os.O_RDONLY); err != nil {
		return nil, err
	}
	control, err := server.CreateSocket(socketPath(dir, name))
	if err != nil {
		return nil, fmt.Errorf("make the control socket: %w", err)
	}
	s.files = append(s.files, os.NewFile(uintptr(control), "control"))
	for range 3 {
		if err := s.open(os.DevNull, os.O_RDWR); err != nil {
			return nil, err
		}
	}
	notify, ready, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, ready)
	return notify, nil
}

// bootArgs returns the arguments with additional flags.
func (s *spawning) bootArgs(more ...string) []string {
	return slices.Insert(slices.Clone(s.Args), s.Boot, more...)
}

// env returns the environment of a sentry. It contains the number of processors and their
// features, and disables names for memory areas.
func (s *spawning) env() []string {
	env := s.off.Env()
	if !s.off[tuning.GoDebug] {
		env = append(env, "GODEBUG=containermaxprocs=0,updatemaxprocs=0,decoratemappings=0")
	}
	if !s.off[tuning.Processor] {
		env = append(env, processor.Env())
	}
	return env
}

// start starts the sentry in its namespaces and its cgroup, and returns its pid. On the host it has its own user, in a user namespace that maps only this
// user as root, until it has sandboxed itself.
func (s *spawning) start(program string, group *cgroup.Group, ns *os.File, user int) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	sys := syscall.SysProcAttr{Credential: &syscall.Credential{}}
	into, err := group.FD()
	if err != nil {
		return 0, err
	}
	if into != nil {
		defer into.Close()
		sys.UseCgroupFD, sys.CgroupFD = true, int(into.Fd())
	}
	enter := func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return group.Enter()
	}
	keepFiles()
	if f := confiner(); f != nil && !s.off[tuning.Confiner] {
		pid, err = s.startConfined(f, program, sys, null, enter, user)
		if !errors.Is(err, unix.EACCES) {
			return pid, err
		}
		// Executable memory files are forbidden here.
	}
	sys.Setsid = true
	sys.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	sys.UidMappings = []syscall.SysProcIDMap{{HostID: user, Size: 1}}
	sys.GidMappings = sys.UidMappings
	onOwnThread(func() {
		if err = enter(); err != nil {
			return
		}
		var p *os.Process
		attr := &os.ProcAttr{Env: s.env(), Files: append(slices.Repeat([]*os.File{null}, firstFile), s.files...), Sys: &sys}
		if p, err = os.StartProcess(program, s.bootArgs(s.Alone...), attr); err == nil {
			pid = p.Pid
			p.Release()
		}
	})
	return pid, err
}

// startConfined has launcher.Confine's program start the sentry.
func (s *spawning) startConfined(confiner *os.File, program string, sys syscall.SysProcAttr, null *os.File, enter func() error, user int) (pid int, err error) {
	sentry, err := os.Open(program)
	if err != nil {
		return 0, err
	}
	defer sentry.Close()
	var ends [6]*os.File
	for i := 0; i < len(ends); i += 2 {
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			return 0, err
		}
		defer ends[i].Close()
		defer ends[i+1].Close()
	}
	told, tells, waits, lets, umounts, umount := ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]
	// The program is passed as one of its own descriptors: any other number might
	// refer to another file by the time it is used. The sentry closes it.
	files := slices.Concat([]*os.File{null, null, null, tells, waits, umounts, sentry}, s.files, []*os.File{umount, confiner})
	args := s.bootArgs(fmt.Sprint(s.MountFD, len(files)-2))
	path := fmt.Sprintf("/proc/self/fd/%d", len(files)-1)
	var p *os.Process
	onOwnThread(func() {
		if err = enter(); err == nil {
			p, err = os.StartProcess(path, args, &os.ProcAttr{Env: s.env(), Files: files, Sys: &sys})
		}
	})
	if err != nil {
		return 0, err
	}
	tells.Close()
	var number [4]byte
	_, err = io.ReadFull(told, number[:])
	if state, werr := p.Wait(); err != nil || werr != nil {
		return 0, fmt.Errorf("make its namespaces: %w", cmp.Or(werr, error(syscall.Errno(state.ExitCode()))))
	}
	pid = int(binary.NativeEndian.Uint32(number[:]))
	root := fmt.Sprintf("0 %d 1", user)
	for _, m := range [...][2]string{{"setgroups", "deny"}, {"gid_map", root}, {"uid_map", root}} {
		err = cmp.Or(err, sysfile.Write(fmt.Sprintf("/proc/%d/%s", pid, m[0]), m[1]))
	}
	if err == nil {
		_, err = lets.Write([]byte{1})
	}
	if err != nil {
		process.End(pid)
		return 0, err
	}
	return pid, nil
}

// confiner returns a program that creates the sentry's namespaces, gives it an empty root, and
// drops its privileges before it starts; dropping them itself would take the sentry some
// milliseconds because of its many threads. It is nil if there is none.
var confiner = sync.OnceValue(func() *os.File {
	b, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return nil
	}
	last, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return nil
	}
	program := launcher.Confine(last)
	if program == nil {
		return nil
	}
	fd, err := launcher.File("confine", program)
	if err != nil { // such as where executable memory files are forbidden
		return nil
	}
	return os.NewFile(uintptr(fd), "confine")
})

// onOwnThread runs f on a thread that ends afterwards, whatever f has changed about it.
func onOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked
		if unix.Gettid() == unix.Getpid() {
			// The first thread never ends. It is kept busy while another one is found.
			onOwnThread(f)
			runtime.UnlockOSThread()
		} else {
			f()
		}
		close(done)
	}()
	<-done
}
