package microvm_test

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/gateway"
	"github.com/bothy-dev/bothy/guest/client"
)

// sandbox is a machine with a client.
type sandbox struct {
	t *testing.T
	m bothy.Machine
	c *client.Client
	// set is how long the latest call took that set the machine's clock. The clock is behind by
	// at most that, since it is set to the time at which the host sent it.
	set time.Duration
}

// patience limits what a test does with machines.
const patience = 4 * time.Minute

func spec(id string) bothy.MachineSpec {
	return bothy.MachineSpec{
		ID: id, RootFS: built.rootfs, Guest: built.guest, Hostname: id,
		Limits: bothy.Limits{CPU: 1, MemoryMB: 128, DiskMB: 64, Processes: 256},
	}
}

// use connects a machine, and destroys it when the test ends. It is not adopted yet.
func use(t *testing.T, m bothy.Machine, err error) *sandbox {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Destroy(context.Background()) })
	dev, err := m.NetDevice(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(dev, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	s := &sandbox{t: t, m: m}
	s.c = client.New(func(ctx context.Context) (net.Conn, error) { return g.Dial(ctx, bothy.GuestPort) }, "key")
	t.Cleanup(s.c.CloseIdle)
	return s
}

// adopt gives the sandbox an identity.
func (s *sandbox) adopt() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := s.c.WaitReady(ctx); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.c.Adopt(ctx, client.Identity{Key: "key", SandboxID: s.m.ID(), Hostname: s.m.ID(), User: "root", Cwd: "/workspace"}); err != nil {
		s.t.Fatal(err)
	}
}

// run runs the probe to its end and returns what it printed.
func (s *sandbox) run(args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	r, err := s.c.Exec(ctx, bothy.ExecRequest{Command: bothy.Command{Args: append([]string{"/probe"}, args...)}, User: "root"})
	if err != nil {
		s.t.Fatalf("probe %v: %v", args, err)
	}
	if r.ExitCode != 0 {
		s.t.Fatalf("probe %v: exit code %d: %s", args, r.ExitCode, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// background starts the probe in the background.
func (s *sandbox) background(args ...string) {
	s.t.Helper()
	_, err := s.c.Exec(s.t.Context(), bothy.ExecRequest{Command: bothy.Command{Args: append([]string{"/probe"}, args...)}, User: "root", Background: true})
	if err != nil {
		s.t.Fatalf("probe %v: %v", args, err)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func (s *sandbox) snapshot(o bothy.SnapshotOptions) {
	s.t.Helper()
	if o.MemoryDir != "" {
		if err := os.Mkdir(o.MemoryDir, 0o700); err != nil {
			s.t.Fatal(err)
		}
	}
	begun := time.Now()
	if err := s.m.Snapshot(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
	s.set = time.Since(begun)
}

// TestLifeInside boots a machine, in which root tries to escape and to use its rights, changes files,
// and restores copies of it, in each of which a container runs.
func TestLifeInside(t *testing.T) {
	dir := t.TempDir()
	e := newEngine(t, options(dir, newParent(t)))
	start := func(spec bothy.MachineSpec) *sandbox {
		m, err := e.Start(t.Context(), spec)
		return use(t, m, err)
	}
	wake := func(id, from string) *sandbox {
		begun := time.Now()
		m, err := e.Restore(t.Context(), spec(id), from)
		took := time.Since(begun)
		s := use(t, m, err)
		s.set = took
		return s
	}
	one := start(spec("one"))
	one.adopt()
	if out := one.run("attack"); out != "" {
		t.Errorf("root in the sandbox could:\n%s", out)
	}
	one.run("now") // process 1 is still running
	one.run("change")
	if out := one.run("rights"); out != "" {
		t.Errorf("root in the sandbox could not:\n%s", out)
	}
	one.background("contain", "/workspace/count")
	until(t, "the first tick", func() bool { return one.run("cat", "/workspace/count") > "0" })

	first, tar := filepath.Join(dir, "first"), filepath.Join(dir, "first.tar")
	one.snapshot(bothy.SnapshotOptions{MemoryDir: first, FilesTar: tar})
	before := one.run("cat", "/workspace/count")
	until(t, "the original to go on", func() bool { return one.run("cat", "/workspace/count") != before })

	t.Run("a copy is frozen until it is adopted", func(t *testing.T) {
		a, b := wake("a", first), wake("b", first)
		was := counted(t, a)
		time.Sleep(200 * time.Millisecond) // forty ticks
		if is := counted(t, a); is != was {
			t.Errorf("a copy that was not adopted continues to count, from %s to %s", was, is)
		}
		a.adopt()
		b.adopt()
		until(t, "the copy to go on", func() bool { return a.run("cat", "/workspace/count") != was })
		fresh(t, one, a, b)

		// A copy that has changed can be copied too, after its origin was destroyed.
		a.run("write", "/workspace/new", "3")
		if err := os.RemoveAll(first); err != nil {
			t.Fatal(err)
		}
		second := filepath.Join(dir, "second")
		a.snapshot(bothy.SnapshotOptions{MemoryDir: second, Stop: true})
		if err := a.m.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := wake("c", second)
		c.adopt()
		was = c.run("cat", "/workspace/count")
		until(t, "the copy of a copy to go on", func() bool { return c.run("cat", "/workspace/count") != was })
		if n := len(c.run("cat", "/workspace/new")); n < 2<<20 {
			t.Errorf("the copy of a copy has %d bytes of a file of 3 MB", n)
		}
	})
	t.Run("files come back without memory", func(t *testing.T) {
		s := spec("files")
		s.FilesTar = tar
		f := start(s)
		f.adopt()
		if got, want := f.run("changed"), "true true /etc/linked new 12 34 2 blue"; got != want {
			t.Errorf("files are %q, want %q", got, want)
		}
	})
	t.Run("limits hold", func(t *testing.T) { limitsHold(t, one) })
}

// counted reads the ticker's file from the machine's file system, since no command can run yet.
func counted(t *testing.T, s *sandbox) string {
	t.Helper()
	tar := filepath.Join(t.TempDir(), "files.tar")
	if err := s.m.Snapshot(t.Context(), bothy.SnapshotOptions{FilesTar: tar}); err != nil {
		t.Fatal(err)
	}
	return fileIn(t, tar, "./workspace/count")
}

// fresh checks that copies have the right time and different randomness.
func fresh(t *testing.T, all ...*sandbox) {
	t.Helper()
	seen := map[string]bool{}
	for _, s := range all {
		early := time.Now().Add(-time.Second - s.set)
		var nanos int64
		var random string
		if _, err := fmt.Sscan(s.run("now"), &nanos, &random); err != nil {
			t.Fatal(err)
		}
		if at := time.Unix(0, nanos); at.Before(early) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("the time in %s is %v, and on the host %v; setting it took %v", s.m.ID(), at, time.Now(), s.set)
		}
		if seen[random] {
			t.Errorf("two machines drew the same random number %s", random)
		}
		seen[random] = true
	}
}

// limitsHold runs a process that allocates more memory than there is, and fills the disk.
func limitsHold(t *testing.T, s *sandbox) {
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	told := make(chan int64, 1)
	go s.m.WatchMemory(watching, func(used, limit int64) {
		select {
		case told <- used:
		default:
		}
	})
	s.background("eat", "90")
	until(t, "the memory to be seen", func() bool {
		st, err := s.m.Stats(t.Context())
		return err == nil && st.MemoryBytes > 90<<20
	})
	s.background("eat", "60")
	select {
	case used := <-told:
		if used <= 128<<20 {
			t.Errorf("%d bytes were reported, which is below the limit", used)
		}
	case <-time.After(patience):
		t.Fatal("there was no notification that the memory was used up")
	}
	// A larger step: memory is added while it runs.
	l := spec("").Limits
	l.MemoryMB, l.CPU = 224, 2
	if err := s.m.SetLimits(t.Context(), l); err != nil {
		t.Fatalf("%v; exit: %+v", err, s.m.Exit())
	}
	until(t, "the second process to get its memory", func() bool {
		st, err := s.m.Stats(t.Context())
		return err == nil && st.MemoryBytes > 150<<20
	})
	l.MemoryMB = 4096
	if err := s.m.SetLimits(t.Context(), l); bothy.ErrorCode(err) != bothy.CodeUnsupported {
		t.Errorf("more memory than the machine can have: %v", err)
	}
	r, err := s.c.Exec(t.Context(), bothy.ExecRequest{Command: bothy.Command{Args: []string{"/probe", "write", "/workspace/full", "100"}}, User: "root"})
	if err != nil || r.ExitCode == 0 || !strings.Contains(r.Stderr, "no space left") {
		t.Errorf("writing more than the quota of the disk: %+v, %v", r, err)
	}
	st, err := s.m.Stats(t.Context())
	if err != nil || st.DiskBytes < 50<<20 || st.DiskBytes > 80<<20 || st.Processes < 3 {
		t.Errorf("the reported usage is %+v, %v", st, err)
	}
}

// TestMemory looks at the memory of a machine that was booted, and of one that was restored,
// from both sides. Inside, there is what the limits grant, whenever they change. Outside,
// what a program has freed comes back: pages of files stay between its own, so that no
// large piece is free.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	e := newEngine(t, options(dir, newParent(t)))
	comesBack := func(s *sandbox, file string) {
		t.Helper()
		const taken, kept = 80, 24 // MB
		before := resident(t, s.m)
		s.run("scatter", fmt.Sprint(taken), file)
		until(t, "the host to get back what was freed", func() bool { return resident(t, s.m) < before+kept<<20 })
	}
	m, err := e.Start(t.Context(), spec("booted"))
	booted := use(t, m, err)
	booted.adopt()
	booted.has(128)
	comesBack(booted, "/workspace/one")
	limits := spec("").Limits
	for _, mb := range []int{224, 96} {
		limits.MemoryMB = mb
		if err := booted.m.SetLimits(t.Context(), limits); err != nil {
			t.Fatal(err)
		}
		booted.has(mb)
	}
	from := filepath.Join(dir, "from")
	booted.snapshot(bothy.SnapshotOptions{MemoryDir: from, Stop: true})
	if err := booted.m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	larger := spec("woken")
	larger.Limits.MemoryMB = 1024
	if _, err := e.Restore(t.Context(), larger, from); bothy.ErrorCode(err) != bothy.CodeUnsupported {
		t.Errorf("restoring a machine with more memory than it can have: %v", err)
	}
	larger.Limits.MemoryMB = 192
	m, err = e.Restore(t.Context(), larger, from)
	woken := use(t, m, err)
	woken.adopt()
	woken.has(192)
	comesBack(woken, "/workspace/two")

	// QEMU's message about a truncated snapshot is in the error.
	devices := filepath.Join(from, "devices")
	if st, err := os.Stat(devices); err != nil || os.Truncate(devices, st.Size()/2) != nil {
		t.Fatal("the snapshot cannot be cut off")
	}
	_, err = e.Restore(t.Context(), spec("half"), from)
	if bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged || !strings.Contains(fmt.Sprint(errors.Unwrap(err)), "load of migration failed") {
		t.Errorf("restoring a truncated snapshot: %v (%v)", err, errors.Unwrap(err))
	}
}

// has waits until the sandbox reports this much memory, and not much more.
func (s *sandbox) has(mb int) {
	s.t.Helper()
	const kernels = 100
	until(s.t, fmt.Sprintf("%d MB of memory", mb), func() bool {
		var kb int
		if _, err := fmt.Sscanf(s.run("cat", "/proc/meminfo"), "MemTotal: %d kB", &kb); err != nil {
			s.t.Fatal(err)
		}
		return kb >= mb<<10 && kb < (mb+kernels)<<10
	})
}

// resident returns how much of a machine's memory is resident on the host, in bytes.
func resident(t *testing.T, m bothy.Machine) int64 {
	t.Helper()
	var state struct {
		PID   int
		RAMAt uint64 `json:"ram_at"`
	}
	if err := json.Unmarshal(m.State(), &state); err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", state.PID))
	if err != nil {
		t.Fatal(err)
	}
	_, memory, found := strings.Cut(string(maps), fmt.Sprintf("%x-", state.RAMAt))
	_, rss, _ := strings.Cut(memory, "\nRss:")
	var kb int64
	if _, err := fmt.Sscanf(rss, "%d kB", &kb); !found || err != nil {
		t.Fatalf("QEMU has no memory at %x: %v", state.RAMAt, err)
	}
	return kb << 10
}

// TestHostDiskFull fills the host's disk while a machine runs.
func TestHostDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := command("mount", "-t", "tmpfs", "-o", "size=420m,mode=755", "none", dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command("umount", dir) })
	o := options(dir, newParent(t))
	o.DiskPatience = time.Second
	m, err := newEngine(t, o).Start(t.Context(), spec("full"))
	s := use(t, m, err)
	s.adopt()
	f, err := os.Create(filepath.Join(dir, "hog"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for buf := make([]byte, 1<<20); ; {
		if _, err := f.Write(buf); err != nil {
			break
		}
	}
	s.background("write", "/workspace/much", "40")
	select {
	case <-m.Done():
	case <-time.After(patience):
		t.Fatal("a machine that cannot write keeps running")
	}
	if x := m.Exit(); x.Reason != bothy.EndDiskFull || x.Detail == "" {
		t.Errorf("exit is %+v", x)
	}
}

// fileIn reads one file of a tar.
func fileIn(t *testing.T, path, name string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s in %s: %v", name, path, err)
		}
		if h.Name == name {
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
	}
}
