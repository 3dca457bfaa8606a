package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// box is the sandbox: the guest and what it starts. The cgroup "sandbox" has two
// children: "guest" with only the guest, so that it can run while the others are
// stopped, and "user", which is the root of what the sandbox sees. Commands start in
// "main" below it: a cgroup with processes cannot delegate controllers to its
// children, which container runtimes need.
type box struct {
	news  *os.File
	guest *exec.Cmd
	cpus  int
	spare blocks

	mu sync.Mutex
	// closed is set in a copy that is not adopted yet: its user's processes are stopped until
	// then.
	closed bool
}

const (
	sandboxGroup = cgroupDir + "/sandbox"
	guestGroup   = sandboxGroup + "/guest"
	userGroup    = sandboxGroup + "/user"
	mainGroup    = userGroup + "/main"
)

// freezeTime is how long processes may take to stop.
const freezeTime = 10 * time.Second

// headroom is how far above the limit the kernel kills. At the limit it slows down processes
// that allocate, and the host has the guest choose one to kill.
const (
	slowAbove = 8 << 20
	headroom  = 48 << 20
)

// guestTasks is the number of threads of the guest, in addition to the sandbox's processes.
const guestTasks = 32

func startBox(o Start, news *os.File) (*box, error) {
	if err := assemble(o); err != nil {
		return nil, err
	}
	b := &box{news: news, cpus: o.CPUs, spare: offlineBlocks(o.Blocks)}
	if err := b.makeGroups(); err != nil {
		return nil, fmt.Errorf("make the cgroup: %w", err)
	}
	if err := restrictDevices(sandboxGroup); err != nil {
		return nil, fmt.Errorf("restrict devices: %w", err)
	}
	if err := b.setLimits(o.Limits); err != nil {
		return nil, err
	}
	if err := network(); err != nil {
		return nil, fmt.Errorf("set up the network: %w", err)
	}
	if err := b.startGuest(o); err != nil {
		return nil, err
	}
	go b.watchMemory()
	return b, nil
}

// assemble assembles the root file system at sandboxDir.
func assemble(o Start) error {
	if o.Modules {
		if err := mountModules(); err != nil {
			return badImage{err}
		}
	}
	for name, to := range map[string]string{DiskRoot: lowerDir, DiskGuest: guestDir} {
		d, err := disk(name)
		if err != nil {
			return err
		}
		if err := mount(d, "erofs", to, unix.MS_RDONLY, ""); err != nil {
			return badImage{fmt.Errorf("mount the image %s: %w", name, err)}
		}
	}
	if _, err := os.Stat(guestDir + "/guest"); err != nil {
		return badImage{errors.New("the guest's image holds no guest")}
	}
	d, err := disk(DiskUpper)
	if err != nil {
		return err
	}
	// Freed blocks are given back to the host.
	if err := mount(d, "ext4", diskDir, unix.MS_NOATIME, "discard"); err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	_ = os.Remove(diskDir + "/lost+found")
	for _, dir := range []string{upperDir, workDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := copyOwner(lowerDir, upperDir); err != nil {
		return err
	}
	if o.Files {
		d, err := disk(DiskFiles)
		if err != nil {
			return err
		}
		if err := readTar(d, upperDir); err != nil {
			return fmt.Errorf("bring the files back: %w", err)
		}
	}
	options := "lowerdir=" + lowerDir + ",upperdir=" + upperDir + ",workdir=" + workDir + ",redirect_dir=off,metacopy=off,index=off,xino=off"
	if err := mount("overlay", "overlay", sandboxDir, 0, options); err != nil {
		return fmt.Errorf("mount the root file system: %w", err)
	}
	return nil
}

// copyOwner gives the folder the other's owner and mode.
func copyOwner(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	return errors.Join(os.Chown(to, int(st.Uid), int(st.Gid)), unix.Chmod(to, st.Mode&0o7777))
}

func (b *box) makeGroups() error {
	if err := write(cgroupDir+"/cgroup.subtree_control", "+memory +pids"); err != nil {
		return err
	}
	// Container runtimes inside look for these, too, if the kernel has them.
	for _, c := range []string{"+cpu", "+cpuset", "+io"} {
		_ = write(cgroupDir+"/cgroup.subtree_control", c)
	}
	for _, dir := range []string{sandboxGroup, guestGroup, userGroup, mainGroup} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	have, err := os.ReadFile(sandboxGroup + "/cgroup.controllers")
	if err != nil {
		return err
	}
	for c := range strings.FieldsSeq(string(have)) {
		if err := write(sandboxGroup+"/cgroup.subtree_control", "+"+c); err != nil {
			return err
		}
	}
	return nil
}

func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (b *box) setLimits(l Limits) error {
	if err := b.spare.setOnline(l.Blocks); err != nil {
		return fmt.Errorf("bring memory: %w", err)
	}
	if err := keepFree(); err != nil {
		return fmt.Errorf("set how much memory is kept free: %w", err)
	}
	for file, value := range map[string]int64{
		"memory.high": l.MemoryBytes + slowAbove, "memory.max": l.MemoryBytes + headroom, "pids.max": int64(l.Processes) + guestTasks,
	} {
		if err := write(sandboxGroup+"/"+file, strconv.FormatInt(value, 10)); err != nil {
			return fmt.Errorf("set %s: %w", file, err)
		}
	}
	for n := 1; n < b.cpus; n++ {
		want := "0"
		if n < l.CPUs {
			want = "1"
		}
		file := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", n)
		if have, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(have)) == want {
			continue // a kernel that cannot change it keeps what it has
		}
		if err := write(file, want); err != nil {
			return fmt.Errorf("set the number of processors: %w", err)
		}
	}
	b.mu.Lock()
	memoryLimit.Store(l.MemoryBytes)
	b.mu.Unlock()
	return nil
}

// startGuest runs this program again, in new namespaces, where it becomes the guest.
func (b *box) startGuest(o Start) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "stage"), os.NewFile(uintptr(pair[1]), "stage")
	defer ours.Close()
	group, err := os.Open(userGroup)
	if err != nil {
		return err
	}
	defer group.Close()
	b.guest = exec.Command("/proc/self/exe", stageArg, o.Hostname,
		strconv.Itoa(o.Limits.Processes), strconv.FormatInt(o.Limits.MemoryBytes, 10))
	b.guest.Env = o.Env
	b.guest.Stderr = os.Stderr
	b.guest.ExtraFiles = []*os.File{theirs}
	b.guest.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UseCgroupFD: true, CgroupFD: int(group.Fd()), Setsid: true,
	}
	err = b.guest.Start()
	theirs.Close()
	if err != nil {
		return fmt.Errorf("start the guest: %w", err)
	}
	// The stage sends an error, or a descriptor and then EOF once it has become the guest.
	gate, err := stageResult(ours)
	if err != nil {
		_ = b.guest.Process.Kill()
		_ = b.guest.Wait()
		return err
	}
	go b.keepGate(gate)
	return nil
}

// wait returns how the guest has ended.
func (b *box) wait() error {
	err := b.guest.Wait()
	if kills := oomKills(); kills > 0 && b.guest.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return errors.New(WordOOM)
	}
	if err == nil {
		return errors.New(WordGuest + "exit status 0")
	}
	return errors.New(WordGuest + err.Error())
}

// The reasons that FindFailure may return: that memory was exhausted, or that the guest ended, and
// how.
const (
	WordOOM   = "out of memory"
	WordGuest = "the guest ended: "
)

func oomKills() int { return keyed(sandboxGroup+"/memory.events", "oom_kill") }

// keyed reads one number from a file of names and numbers.
func keyed(path string, names ...string) (sum int) {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, name := range names {
			if k == name {
				n, _ := strconv.Atoi(v)
				sum += n
			}
		}
	}
	return sum
}

// used is the memory that cannot be taken back without killing.
func used() int64 {
	return int64(keyed(sandboxGroup+"/memory.stat", "anon", "shmem", "kernel_stack", "pagetables", "slab_unreclaimable", "sock"))
}

func (b *box) stats() (*Stats, error) {
	s := &Stats{MemoryBytes: used()}
	var fs unix.Statfs_t
	if err := unix.Statfs(diskDir, &fs); err != nil {
		return nil, err
	}
	s.DiskBytes = int64(fs.Blocks-fs.Bfree) * fs.Bsize
	for _, g := range []string{guestGroup, userGroup} {
		n, err := processes(g)
		if err != nil {
			return nil, err
		}
		s.Processes += n
	}
	return s, nil
}

// processes counts the processes in a cgroup and all below it.
func processes(group string) (n int, err error) {
	err = filepath.WalkDir(group, func(dir string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil || !d.IsDir():
			return err
		}
		b, err := os.ReadFile(dir + "/cgroup.procs")
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EOPNOTSUPP) {
			return err // the last: its threads are counted above it
		}
		n += len(strings.Fields(string(b)))
		return nil
	})
	return n, err
}

// freeze stops everything, in such a way that thaw can resume the guest alone.
func (b *box) freeze() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := setFrozen(sandboxGroup, true); err != nil {
		return err
	}
	return write(userGroup+"/cgroup.freeze", "1")
}

// thaw resumes everything, or the guest alone in a copy that is not adopted yet.
func (b *box) thaw() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.thawLocked()
}

func (b *box) thawLocked() error {
	if !b.closed {
		if err := setFrozen(userGroup, false); err != nil {
			return err
		}
	}
	return setFrozen(sandboxGroup, false)
}

// wake is thaw in a copy.
func (b *box) wake() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.thawLocked()
}

// adopted opens the gate that wake has closed.
func (b *box) adopted() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		return nil
	}
	b.closed = false
	return setFrozen(userGroup, false)
}

func setFrozen(group string, frozen bool) error {
	value, want := "0", "frozen 0"
	if frozen {
		value, want = "1", "frozen 1"
	}
	if err := write(group+"/cgroup.freeze", value); err != nil {
		return err
	}
	if !frozen {
		return nil
	}
	deadline := time.Now().Add(freezeTime)
	for {
		b, err := os.ReadFile(filepath.Join(group, "cgroup.events"))
		if err != nil || strings.Contains(string(b), want) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the processes were not frozen within %v", freezeTime)
		}
		time.Sleep(shortly)
	}
}
