package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/microvm/jail"
	"github.com/bothy-dev/bothy/engine/microvm/vm"
	"github.com/bothy-dev/bothy/engine/process"
	"github.com/bothy-dev/bothy/guest/abi"
	"github.com/bothy-dev/bothy/internal/cleanup"
)

// bootTime bounds a start or a restore whose caller sets no deadline.
const bootTime = 3 * time.Minute

// guestEnv is the environment of process 1 alone. Its kernel protects process 1 from signals
// anyway, and root inside has all capabilities: the machine is the boundary.
var guestEnv = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"GOMAXPROCS=1", "GOGC=off", "GODEBUG=containermaxprocs=0,updatemaxprocs=0,multipathtcp=0",
	abi.EnvSpared + "=1", abi.EnvBound + "=1", abi.EnvCommandsCgroup + "=" + vm.CommandsCgroup,
}

// Start boots a machine from a template.
func (e *Engine) Start(ctx context.Context, spec bothy.MachineSpec) (bothy.Machine, error) {
	if err := checkSize(spec.Limits); err != nil {
		return nil, err
	}
	release, ok := e.bootable(ctx.Done())
	if !ok {
		return nil, ctx.Err()
	}
	defer release()
	p := plan{spec: spec, from: e.own, build: e.own.Name, class: class{CPUs: maxCPUs, Files: spec.FilesTar != "", Ticks: rateSince(e.made)}}
	p.class.RAMMB, p.class.OpenMB, p.class.OwnMB = memorySizes(spec.Limits)
	boot := func(ctx context.Context, m *Machine, c monitor) error {
		ctx, giveUp := context.WithCancelCause(ctx)
		defer giveUp(nil)
		go func() {
			if e.o.Acceleration == bothy.AccelerationEmulated && m.words.until(ctx.Done(), badTimer) {
				giveUp(errTimer)
			}
		}()
		if err := c.resume(ctx); err != nil {
			return err
		}
		c.Close() // others may use it while the machine boots
		r, err := ask(ctx, m.dir, vm.Request{Op: vm.OpStart, UnixNano: time.Now().UnixNano(), Entropy: entropy(), Start: &vm.Start{
			Hostname: spec.Hostname, Files: p.class.Files, Modules: e.own.Path(roleModules) != "", Limits: p.class.innerLimits(spec.Limits), Env: guestEnv, CPUs: p.class.CPUs,
			Blocks: p.class.spareBlocks(),
		}}, nil)
		if err != nil || r.Blocks == 0 {
			return err
		}
		// It could not take all spare blocks offline.
		if c, err = m.e.vmm.open(ctx, m.dir); err != nil {
			return err
		}
		defer c.Close()
		return c.balloon(ctx, p.class.balloonBytes(spec.Limits, r.Blocks))
	}
	m, err := e.launch(ctx, p, boot)
	for try := 1; errors.Is(err, errTimer) && try < timerTries; try++ {
		m, err = e.launch(ctx, p, boot)
	}
	if err != nil {
		return nil, engine.StartError("microvm", "engine.start", err)
	}
	return m, nil
}

// class is what cannot change while a machine lives, nor in its copies.
type class struct {
	RAMMB int `json:"ram_mb"`
	// OpenMB is how much of its memory its kernel started with, and OwnMB how much of it is not
	// the sandbox's.
	OpenMB int `json:"open_mb"`
	OwnMB  int `json:"own_mb"`
	CPUs   int `json:"cpus"`
	// Files is set if it has a disk with initial files.
	Files bool `json:"files"`
	// Ticks is the rate of an emulated machine's clock, in kHz.
	Ticks uint64 `json:"ticks"`
}

// plan describes a machine to launch. One that is to be restored has memory and a layer.
type plan struct {
	spec  bothy.MachineSpec
	class class
	ram   *os.File
	layer string
	// from is the build that it is run from; kept is the same if the machine keeps that build.
	from, kept *builds.Held
	build      string
	// uid is its user and group on the host.
	uid int
}

// launch makes everything that a machine needs, runs QEMU and calls begin, which
// boots or wakes it. On failure nothing is left.
func (e *Engine) launch(ctx context.Context, p plan, begin func(context.Context, *Machine, monitor) error) (_ *Machine, err error) {
	if err := e.hold(p.spec.ID); err != nil {
		return nil, err
	}
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(func() { e.releaseID(p.spec.ID) })
	dir := e.dir(p.spec.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, engine.Conflict(p.spec.ID)
		}
		return nil, err
	}
	undo.Add(func() { os.RemoveAll(dir) })
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if p.uid, err = e.uids.Take(dir); err != nil {
		return nil, err
	}
	undo.Add(func() { e.uids.Release(p.uid, dir) })
	words, err := makePlaces(dir, p.uid)
	if err != nil {
		return nil, err
	}
	defer words.Close()
	if p.layer != "" {
		err = copyFile(p.layer, filepath.Join(dir, layerName))
	} else {
		err = makeLayer(filepath.Join(e.o.Dir, cacheName), filepath.Join(dir, layerName), p.spec.Limits.DiskMB)
	}
	if err != nil {
		return nil, fmt.Errorf("make the writable layer: %w", err)
	}
	// The kernel and process 1 start with all processors: no user code runs before SetLimits. A
	// snapshot that QEMU reads may have been crafted to use up everything.
	cpu := 0.0
	if p.ram != nil {
		cpu = max(maxCPUs, p.spec.Limits.CPU)
	}
	group, err := e.cgroups.Create(p.spec.ID, p.class.hostLimits(p.spec.Limits, cpu))
	if err != nil {
		return nil, err
	}
	undo.Add(func() { group.Kill(); group.Remove() })
	pid, ramFD, err := e.spawn(p, dir, group, words)
	if err != nil {
		return nil, err
	}
	proc, err := process.Open(pid)
	if err != nil {
		process.End(pid)
		return nil, err
	}
	m := e.newMachine(p, proc, group, dir)
	m.ramFD = ramFD
	undo.Release()
	if err := m.begin(ctx, begin); err != nil {
		err = m.explain(err)
		m.end()
		return nil, err
	}
	return m, nil
}

// begin boots or restores a new machine.
func (m *Machine) begin(ctx context.Context, begin func(context.Context, *Machine, monitor) error) error {
	ctx, cancel := m.bound(ctx, bootTime)
	defer cancel()
	c, err := m.e.vmm.open(ctx, m.dir)
	if err != nil {
		return err
	}
	defer c.Close()
	if m.ramAt, err = findRAM(m.proc.PID, m.ramSize()); err != nil {
		return err
	}
	if err := awaitNetDevice(ctx, filepath.Join(m.dir, netDeviceSocket)); err != nil {
		return err
	}
	return begin(ctx, m, c)
}

// explain adds the machine's own messages, and what they mean, to the error of a start.
func (m *Machine) explain(err error) error {
	m.awaitEnd(err)
	var be *bothy.Error
	said := m.words.text()
	switch {
	case errors.Is(err, errTimer):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return bothy.Errorf(bothy.CodeEngine, "the sandbox's kernel did not start in time").
			WithHint("The host may have too much to do: try again, or with fewer at once.").Because(withWords(err, said))
	case errors.As(err, &be) || errors.Is(err, context.Canceled):
		return err
	case panicOf(said) != "":
		return bothy.Errorf(bothy.CodeEngine, "the sandbox's kernel panicked: %s", panicOf(said)).
			WithHint("Run `bothy doctor`; with a kernel of your own, check that it has what the engine needs.").Because(withWords(err, said))
	}
	if errors.Is(err, errEnded) {
		return bothy.Errorf(bothy.CodeEngine, "the sandbox did not start: %s", m.Exit().Detail).
			WithHint("Run `bothy doctor`; the server's log has the cause.").Because(withWords(err, said))
	}
	return withWords(err, said)
}

// endTime is how long it takes at most to learn how a machine ended.
const endTime = 5 * time.Second

// awaitEnd waits for a machine's last output if its end is why something failed.
func (m *Machine) awaitEnd(why error) {
	gone := func(e error) bool { return errors.Is(why, e) }
	if !slices.ContainsFunc([]error{errEnded, io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE}, gone) {
		return
	}
	select {
	case <-m.done:
	case <-time.After(endTime):
	}
}

func withWords(err error, said []byte) error {
	if len(said) == 0 {
		return err
	}
	return fmt.Errorf("%w (machine: %s)", err, tail(said, 600))
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// layerName is the file, in a machine's folder, of its writable layer.
const layerName = "upper"

// makePlaces creates the machine's folders and pipes, and returns where the machine
// and QEMU report errors.
func makePlaces(dir string, user int) (words *os.File, err error) {
	for _, name := range []string{"root", pipesDir} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{ctlPipe, newsPipe, wordPipe} {
		for _, end := range []string{pipeIn, pipeOut} {
			path := filepath.Join(dir, pipesDir, name+end)
			if err := errors.Join(unix.Mkfifo(path, 0o600), os.Chown(path, user, user)); err != nil {
				return nil, err
			}
		}
	}
	return openPipe(dir, wordPipe+pipeOut)
}

// spawn runs QEMU in its jail and cgroup, and returns its process id and its descriptor of the
// plan's memory, or 0.
func (e *Engine) spawn(p plan, dir string, group *cgroup.Group, words *os.File) (pid, ramFD int, err error) {
	var passed []*os.File // from jail.FirstFD on
	defer func() {
		for _, f := range passed {
			f.Close()
		}
	}()
	pass := func(f *os.File, err error) (int, error) {
		if err != nil {
			return 0, err
		}
		passed = append(passed, f)
		return jail.FirstFD + len(passed) - 1, nil
	}
	holeFrom, holeTo := p.class.hole()
	h := hardware{ramMB: p.class.RAMMB, cpus: p.class.CPUs, bootCPUs: processors(p.spec.Limits), accel: e.o.Acceleration, features: e.features(), ticks: p.class.Ticks, holeFromMB: holeFrom, holeToMB: holeTo, wake: p.ram != nil}
	if h.root, err = pass(engine.OpenImage(p.spec.RootFS)); err != nil {
		return 0, 0, err
	}
	if h.guest, err = pass(engine.OpenImage(p.spec.Guest)); err != nil {
		return 0, 0, err
	}
	if h.upper, err = pass(os.OpenFile(filepath.Join(dir, layerName), os.O_RDWR, 0)); err != nil {
		return 0, 0, err
	}
	switch {
	case p.spec.FilesTar != "" && p.ram == nil:
		if h.files, err = pass(os.Open(p.spec.FilesTar)); err != nil {
			return 0, 0, err
		}
	case p.class.Files:
		h.files = -1
	}
	if modules := p.from.Path(roleModules); modules != "" {
		if h.modules, err = pass(engine.OpenImage(modules)); err != nil {
			return 0, 0, err
		}
	}
	for name, fd := range map[string]*int{monitorSocket: &h.monitor, eventsSocket: &h.events, netDeviceSocket: &h.dev} {
		if *fd, err = pass(listenUnix(filepath.Join(dir, name))); err != nil {
			return 0, 0, err
		}
	}
	if p.ram != nil {
		if ramFD, err = pass(reopen(p.ram)); err != nil {
			return 0, 0, err
		}
	}
	argv, err := e.vmm.command(h)
	if err != nil {
		return 0, 0, err
	}
	pid, err = e.run(spawnConfig(p.from.TreePath(), dir, p.uid, argv, p.from.Env, e.o.Acceleration), group, words, passed)
	return pid, ramFD, err
}

// reopen returns a new descriptor for a file, for reading.
func reopen(f *os.File) (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// run starts the jail, and lets it continue when it is in the cgroup.
func (e *Engine) run(c jail.Config, group *cgroup.Group, words *os.File, passed []*os.File) (pid int, err error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	cmd := exec.Command(e.o.Init, jail.Arg)
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = words, words
	cmd.ExtraFiles = append([]*os.File{theirs}, passed...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true,
	}
	into, err := group.FD()
	if err != nil {
		theirs.Close()
		return 0, err
	}
	if into != nil {
		defer into.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(into.Fd())
	}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return 0, fmt.Errorf("start QEMU: %w", err)
	}
	pid = cmd.Process.Pid
	cmd.Process.Release()
	if into == nil {
		err = group.Add(pid)
	}
	if err == nil {
		err = json.NewEncoder(ours).Encode(c)
	}
	if err != nil {
		process.End(pid)
		return 0, err
	}
	return pid, nil
}
