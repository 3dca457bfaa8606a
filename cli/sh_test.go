package cli

import (
	"bufio"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/test/cli/pretend"
)

// person is a user at a terminal.
type person struct {
	t    *testing.T
	pty  *os.File
	out  *bufio.Reader
	seen strings.Builder
}

// does types a line.
func (p *person) does(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.pty, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// sees waits until the terminal shows a text.
func (p *person) sees(text string) {
	p.t.Helper()
	for !strings.Contains(p.seen.String(), text) {
		b, err := p.out.ReadByte()
		if err != nil {
			p.t.Fatalf("%v before %q; the terminal showed %q", err, text, p.seen.String())
		}
		p.seen.WriteByte(b)
	}
	p.seen.Reset()
}

func newWorld(t *testing.T) pretend.World {
	t.Helper()
	world, err := pretend.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	return world
}

// startShell runs `bothy sh` on a new terminal, which stays open.
func startShell(t *testing.T, words ...string) (*person, *exec.Cmd, *os.File) {
	t.Helper()
	world := newWorld(t)
	server := httptest.NewServer(world.Handler())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	ctx := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: bothy.AllScopes})
	sandbox, err := world.Lifecycle.Create(ctx, bothy.SandboxCreate{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := world.Lifecycle.Files().Write(ctx, sandbox.ID, "/.profile", strings.NewReader("PS1='sandbox$ '\n"), bothy.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	return onTerminal(t, server.URL, append([]string{"sh", sandbox.ID}, words...)...)
}

// onTerminal is a command on a new terminal, which stays open.
func onTerminal(t *testing.T, url string, words ...string) (*person, *exec.Cmd, *os.File) {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); tty.Close() })
	if err := pty.Setsize(master, &pty.Winsize{Cols: 100, Rows: 40}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], words...)
	cmd.Args[0] = "bothy"
	cmd.Env = append(os.Environ(), "BOTHY_URL="+url, "BOTHY_API_KEY="+pretend.Key, "GORACE=atexit_sleep_ms=0")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	return &person{t: t, pty: master, out: bufio.NewReader(master)}, cmd, tty
}

func settings(t *testing.T, tty *os.File) *unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestShellFollowsTheWindowAndLeavesTheTerminalAsItWas(t *testing.T) {
	me, cmd, tty := startShell(t)
	before := settings(t, tty)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	me.sees("sandbox$ ")
	if cmp.Equal(before, settings(t, tty)) {
		t.Error("the terminal is not in raw mode")
	}
	me.does("stty size")
	me.sees("40 100")
	if err := pty.Setsize(me.pty, &pty.Winsize{Cols: 120, Rows: 50}); err != nil {
		t.Fatal(err)
	}
	me.does(`until [ "$(stty size)" = "50 120" ]; do :; done; echo resi''zed`)
	me.sees("resized")
	me.does("exit 3")
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("exit code %d, want the shell's own", code)
	}
	if diff := cmp.Diff(before, settings(t, tty)); diff != "" {
		t.Errorf("the terminal was not restored:\n%s", diff)
	}
}

func TestShellPassesCtrlCOn(t *testing.T) {
	me, cmd, _ := startShell(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	me.sees("sandbox$ ")
	// It prints once the terminal is its own; before that, Ctrl-C goes to the shell.
	me.does(`sh -c 'until set -- $(cat /proc/$$/stat) && [ $5 = $8 ]; do :; done; echo go\ing; exec sleep 600'`)
	me.sees("going")
	if _, err := me.pty.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	me.sees("sandbox$ ")
	me.does("echo status $?")
	me.sees("status 130")
	me.does("exit")
	_ = cmd.Wait()
}

func TestShellThatIsKilledRestoresTheTerminal(t *testing.T) {
	me, cmd, tty := startShell(t)
	before := settings(t, tty)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	me.sees("sandbox$ ")
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	if diff := cmp.Diff(before, settings(t, tty)); diff != "" {
		t.Errorf("the terminal was not restored:\n%s", diff)
	}
}
