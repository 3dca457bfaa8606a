package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
	"github.com/bothy-dev/bothy/guest/procfs"
)

// manager is shared: there is one in a process.
var manager = sync.OnceValue(func() *Manager {
	m, err := New(Config{})
	if err != nil {
		panic(err)
	}
	return m
})

func sh(line string) Spec {
	return Spec{Argv: []string{"/bin/sh", "-c", line}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: "/"}
}

func start(t *testing.T, s Spec) *Process {
	t.Helper()
	p, err := manager().Start(s)
	if err != nil {
		t.Fatalf("start %q: %v", s.Argv, err)
	}
	t.Cleanup(p.Kill)
	return p
}

// collect returns a command's output from an offset, by stream.
func collect(t *testing.T, p *Process, from int64) map[Stream]string {
	t.Helper()
	r := p.Attach(from)
	defer r.Close()
	got := map[Stream]string{}
	for next := from; ; {
		c, err := r.Next(t.Context(), nil)
		if err == io.EOF {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		if c.Offset != next {
			t.Fatalf("chunk at %d, want %d", c.Offset, next)
		}
		next += int64(len(c.Data))
		got[c.Stream] += string(c.Data)
	}
}

func exit(t *testing.T, p *Process) Exit {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("the command does not end")
	}
	e, ok := p.Exit()
	if !ok {
		t.Fatal("done without an exit")
	}
	return e
}

func TestOutputAndExitCode(t *testing.T) {
	p := start(t, sh("echo out; echo err >&2; exit 3"))
	got := collect(t, p, 0)
	if got[Stdout] != "out\n" || got[Stderr] != "err\n" {
		t.Errorf("output %q", got)
	}
	if e := exit(t, p); e.Code != 3 || e.Signal != 0 || e.TimedOut {
		t.Errorf("exit %+v", e)
	}
	if p.Running() || manager().Find(p.PID()) != p {
		t.Error("an ended command is not remembered as ended")
	}
}

func TestSignalsBecomeExitCodes(t *testing.T) {
	p := start(t, sh("kill -TERM $$"))
	if e := exit(t, p); e.Code != 128+15 || e.Signal != syscall.SIGTERM {
		t.Errorf("exit %+v", e)
	}
}

func TestInput(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 20<<10) // more than a pipe holds
	for _, input := range [][]byte{{}, []byte("hello"), big} {
		s := Spec{Argv: []string{"cat"}, Env: []string{"PATH=" + os.Getenv("PATH")}, Input: input}
		if got := collect(t, start(t, s), 0)[Stdout]; got != string(input) {
			t.Errorf("cat gave %d bytes of %d", len(got), len(input))
		}
	}
}

func TestInputPipe(t *testing.T) {
	s := sh("read a; echo got $a; cat")
	s.Stdin = true
	p := start(t, s)
	for _, line := range []string{"one\n", "two\n"} {
		if err := p.Write(t.Context(), []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	p.CloseInput()
	if got := collect(t, p, 0)[Stdout]; got != "got one\ntwo\n" {
		t.Errorf("got %q", got)
	}
	exit(t, p)
	if err := p.Write(t.Context(), []byte("x")); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("writing to an ended command: %v", err)
	}
}

func TestWriteEndsWithItsCaller(t *testing.T) {
	s := sh("sleep 60")
	s.Stdin = true
	p := start(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	go func() { errs <- p.Write(ctx, make([]byte, 1<<20)) }()
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("write: %v", err)
	}
}

func TestErrorsOfTheStart(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "text", 0o644)
	junk := write("junk", "\x01\x02\x03\x04", 0o755)
	script := write("script", "#!/no/such/interpreter -x\n", 0o755)
	env := []string{"PATH=" + dir + ":/usr/bin:/bin"}
	for _, c := range []struct {
		name string
		spec Spec
		code bothy.Code
		says string
	}{
		{"nothing", Spec{}, bothy.CodeCommandInvalid, "empty"},
		{"missing name", Spec{Argv: []string{"no-such-command"}, Env: env}, bothy.CodeCommandNotFound, "no-such-command"},
		{"missing path", Spec{Argv: []string{"/no/such/file"}, Env: env}, bothy.CodeCommandNotFound, "/no/such/file"},
		{"empty PATH", Spec{Argv: []string{"ls"}}, bothy.CodeCommandNotFound, "ls"},
		{"not executable", Spec{Argv: []string{plain}, Env: env}, bothy.CodeCommandInvalid, "executed"},
		{"not executable in PATH", Spec{Argv: []string{"plain"}, Env: env}, bothy.CodeCommandInvalid, "executed"},
		{"a folder", Spec{Argv: []string{dir}, Env: env}, bothy.CodeCommandInvalid, "executed"},
		{"no program", Spec{Argv: []string{junk}, Env: env}, bothy.CodeCommandInvalid, "not a program"},
		{"no interpreter", Spec{Argv: []string{script}, Env: env}, bothy.CodeCommandInvalid, "/no/such/interpreter"},
		{"missing folder", Spec{Argv: []string{"true"}, Env: env, Dir: "/no/such/dir"}, bothy.CodeInvalid, "/no/such/dir"},
		{"file as folder", Spec{Argv: []string{"true"}, Env: env, Dir: plain}, bothy.CodeInvalid, "not a directory"},
		{"NUL byte", Spec{Argv: []string{"true", "a\x00b"}, Env: env}, bothy.CodeCommandInvalid, "NUL"},
		{"too long", Spec{Argv: []string{"true", strings.Repeat("x", 8<<20)}, Env: env}, bothy.CodeCommandInvalid, "8388608 bytes"},
		{"many too long", Spec{Argv: append([]string{"true"}, slices.Repeat([]string{strings.Repeat("x", 100_000)}, 30)...), Env: env}, bothy.CodeCommandInvalid, "3000"},
		{"a long line", Spec{Argv: []string{"/bin/sh", "-l", "-c", strings.Repeat("x", 128<<10)}, Env: env}, bothy.CodeCommandInvalid, "the command's line has 131072 bytes"},
		{"a long variable", Spec{Argv: []string{"true"}, Env: append(env, "LONG="+strings.Repeat("x", 128<<10))}, bothy.CodeCommandInvalid, "LONG"},
		{"a folder", Spec{Argv: []string{"/tmp"}, Env: env}, bothy.CodeCommandInvalid, "is a folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := manager().Start(c.spec)
			if err == nil {
				p.Kill()
				t.Fatal("it started")
			}
			if bothy.ErrorCode(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %s with %q", err, c.code, c.says)
			}
		})
	}
}

func TestCommandsRunAsTheirUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	s := sh("id -u; id -g; id -G")
	s.User = &account.User{Name: "someone", UID: 4321, GID: 1234, Groups: []uint32{1234, 77}}
	if got := collect(t, start(t, s), 0)[Stdout]; got != "4321\n1234\n1234 77\n" {
		t.Errorf("id says %q", got)
	}
}

// escape starts a process that leaves its parent, its group and its session,
// and writes its pid to a file.
const escape = `setsid sh -c 'sh -c "echo \$\$ >%[1]s.new; mv %[1]s.new %[1]s; exec sleep 300" &' `

func TestTimeoutKillsTheWholeTree(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	s := sh(fmt.Sprintf(escape, file) + "; while [ ! -s " + file + " ]; do sleep 0.01; done; echo ready; sleep 300")
	p := start(t, s)
	r := p.Attach(0)
	if _, err := r.Next(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.Close()
	p.timeout() // instead of waiting for the clock
	e := exit(t, p)
	if !e.TimedOut || e.Signal != syscall.SIGKILL || e.Hint == "" {
		t.Errorf("exit %+v", e)
	}
	var pid int
	text, _ := os.ReadFile(file)
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	waitGone(t, pid)
}

// waitGone waits for a process to end: killing is not instantaneous.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if p, err := procfs.Read(pid); err != nil || p.Dead() {
			return
		}
	}
	t.Errorf("process %d got away", pid)
}

func TestTimeoutRunsOut(t *testing.T) {
	s := sh("sleep 300")
	s.Timeout = time.Millisecond
	if e := exit(t, start(t, s)); !e.TimedOut || e.Code != 137 {
		t.Errorf("exit %+v", e)
	}
}

func TestSignal(t *testing.T) {
	p := start(t, sh(`trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.01; done`))
	r := p.Attach(0)
	if _, err := r.Next(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := p.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if e := exit(t, p); e.Code != 5 {
		t.Errorf("exit %+v", e)
	}
	if err := p.Signal(syscall.SIGTERM); bothy.ErrorCode(err) != bothy.CodeProcessNotFound {
		t.Errorf("signal to an ended command: %v", err)
	}
	for _, sig := range []syscall.Signal{0, -1, 65} {
		if err := p.Signal(sig); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("signal %d: %v", sig, err)
		}
	}
}

// A server left in the background keeps the output open. It must neither delay the command's end nor
// lose later output.
func TestBackgroundChildDoesNotHoldUpTheEnd(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, sh("(cat "+fifo+" >/dev/null; echo late) & echo started"))
	if got := collect(t, p, 0)[Stdout]; got != "started\n" {
		t.Errorf("got %q", got)
	}
	exit(t, p)
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	for {
		if _, end := p.Output(); end > int64(len("started\n")) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got := collect(t, p, int64(len("started\n")))[Stdout]; got != "late\n" {
		t.Errorf("got %q", got)
	}
}

func TestQuickExitsAreNotLost(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 25 {
				code := (i*25 + j) % 100
				p, err := manager().Start(sh(fmt.Sprintf("exit %d", code)))
				if err != nil {
					t.Error(err)
					return
				}
				if e := exit(t, p); e.Code != code {
					t.Errorf("exit %d, want %d", e.Code, code)
				}
				if _, err := manager().Start(Spec{Argv: []string{"/no/such/program"}}); err == nil {
					t.Error("a missing program started")
				}
			}
		})
	}
	wg.Wait()
}

func TestOrphansAreReaped(t *testing.T) {
	p := start(t, sh("(sh -c 'exit 0' & echo $!) | cat"))
	var pid int
	if _, err := fmt.Sscan(collect(t, p, 0)[Stdout], &pid); err != nil {
		t.Fatal(err)
	}
	exit(t, p)
	waitReaped(t, pid)
}

func waitReaped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err := procfs.Read(pid); err != nil {
			return
		}
	}
	t.Errorf("process %d is still a zombie", pid)
}

func TestTerminal(t *testing.T) {
	s := sh("stty size; tty; read x; echo got:$x; stty size")
	s.Terminal = &Size{Cols: 100, Rows: 30}
	p := start(t, s)
	if err := p.Resize(Size{Cols: 90, Rows: 20}); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(t.Context(), []byte("hi\n")); err != nil {
		t.Fatal(err)
	}
	got := collect(t, p, 0)[Terminal]
	for _, want := range []string{"/dev/pts/", "got:hi", "20 90"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if e := exit(t, p); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	if err := start(t, sh("true")).Resize(Size{1, 1}); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("resize without a terminal: %v", err)
	}
}

func TestKillLargestMarksItsCommand(t *testing.T) {
	p := start(t, sh("head -c 64m /dev/zero | tail -c 64m | (sleep 300; cat >/dev/null)"))
	var v Victim
	for { // until tail has allocated its memory
		var ok bool
		var err error
		if v, ok, err = largest(); err != nil {
			t.Fatal(err)
		}
		if ok && v.RSSBytes > 60<<20 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	v, ok, err := manager().KillLargest(128 << 20)
	if err != nil || !ok || v.Name != "tail" || v.Command != p {
		t.Fatalf("killed %+v, %v, %v", v, ok, err)
	}
	waitGone(t, v.PID)
	p.Kill()
	if e := exit(t, p); !e.OOMKilled || !strings.Contains(e.Hint, "128 MB") || !strings.Contains(e.Hint, "tail") {
		t.Errorf("exit %+v", e)
	}
}

// largest selects a process as KillLargest does, but kills nothing.
func largest() (Victim, bool, error) {
	m := manager()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.largest()
}

// eventually waits for a condition, which is evaluated with the manager's lock held.
func eventually(t *testing.T, what string, holds func(m *Manager) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		m := manager()
		m.mu.Lock()
		ok := holds(m)
		m.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after a minute not yet: %s", what)
		}
	}
}

func TestReaperWaitsWhenNothingHasEndedForLong(t *testing.T) {
	eventually(t, "the reaper has nothing to do", func(m *Manager) bool {
		m.polls = !m.reaping
		return m.polls
	})
	t.Cleanup(func() {
		eventually(t, "the reaper has nothing to do", func(m *Manager) bool {
			m.polls = m.reaping
			return !m.reaping
		})
	})
	server := start(t, sh("exec sleep 1000"))
	for range 2 { // it waits again after a wake-up
		eventually(t, "the reaper waits", func(m *Manager) bool { return m.vain > quietLooks })
		if p := start(t, sh("exit 3")); exit(t, p).Code != 3 {
			t.Errorf("a command ended with %+v while another runs", exit(t, p))
		}
	}
	eventually(t, "the reaper waits", func(m *Manager) bool { return m.vain > quietLooks })
	server.Kill()
	if e := exit(t, server); e.Signal == 0 {
		t.Errorf("the killed command ended with %+v", e)
	}
}
