package client_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/client"
)

const testKey = "the-key-of-this-sandbox"

// agentBinary builds the agent once.
var agentBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "guest")
	cmd := exec.Command("go", "build", "-o", path, "github.com/bothy-dev/bothy/cmd/guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := agentBinary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// guest is a running agent.
type guest struct {
	*client.Client
	root    string // where identity files go
	dir     string // where relative paths start
	process *os.Process
	dial    func(context.Context) (net.Conn, error)
}

// boot starts an agent that has not been adopted yet.
func boot(t testing.TB) *guest {
	t.Helper()
	binary, err := agentBinary()
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{root: t.TempDir(), dir: t.TempDir()}
	cmd := exec.Command(binary, "-listen", "127.0.0.1:0", "-root", g.root, "-user", "root", "-cwd", g.dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.process = cmd.Process
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	g.dial = func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", strings.TrimSpace(address))
	}
	g.Client = client.New(g.dial, "")
	t.Cleanup(g.CloseIdle)
	if err := g.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

// adopted starts an agent with the test's key.
func adopted(t testing.TB) *guest {
	t.Helper()
	g := boot(t)
	if _, err := g.Adopt(t.Context(), client.Identity{Key: testKey, Hostname: "sandbox"}); err != nil {
		t.Fatal(err)
	}
	return g
}

func wantCode(t *testing.T, err error, code bothy.Code) {
	t.Helper()
	if bothy.ErrorCode(err) != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

func line(s string) bothy.ExecRequest { return bothy.ExecRequest{Command: bothy.Command{Line: s}} }
func args(a ...string) bothy.ExecRequest {
	return bothy.ExecRequest{Command: bothy.Command{Args: a}}
}

func TestExec(t *testing.T) {
	g := adopted(t)
	res, err := g.Exec(t.Context(), line("echo out; echo err >&2; pwd; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 3 || res.Stdout != "out\n"+g.dir+"\n" || res.Stderr != "err\n" || res.PID == 0 || res.Truncated {
		t.Errorf("result %+v", res)
	}
	req := args("sh", "-c", "cat; echo $A-$B-$HOME")
	req.Env, req.Stdin, req.Cwd = map[string]string{"A": "1", "B": "ü"}, "input\n", "/"
	if res, err = g.Exec(t.Context(), req); err != nil || res.Stdout != "input\n1-ü-/root\n" {
		t.Errorf("result %+v, %v", res, err)
	}
	req = args("sleep", "60")
	req.TimeoutSeconds = 0.05
	if res, err = g.Exec(t.Context(), req); err != nil || !res.TimedOut || res.ExitCode != 137 || res.Hint == "" {
		t.Errorf("result %+v, %v", res, err)
	}
	if res, err = g.Exec(t.Context(), line(`printf 'a\377b'`)); err != nil || res.Stdout != "a\uFFFDb" {
		t.Errorf("result %+v, %v", res, err)
	}
}

func TestExecErrors(t *testing.T) {
	g := adopted(t)
	user := args("true")
	user.User = "nobody-here"
	cwd := args("true")
	cwd.Cwd = "no/such/folder"
	env := args("true")
	env.Env = map[string]string{"A=B": "1"}
	utf8 := args("echo", "\xff")
	for _, c := range []struct {
		req  bothy.ExecRequest
		code bothy.Code
	}{
		{args("no-such-command"), bothy.CodeCommandNotFound},
		{args("/etc/passwd"), bothy.CodeCommandInvalid},
		{args(""), bothy.CodeCommandInvalid},
		{user, bothy.CodeUserNotFound},
		{cwd, bothy.CodeInvalid},
		{env, bothy.CodeInvalid},
		{utf8, bothy.CodeInvalid},
	} {
		_, err := g.Exec(t.Context(), c.req)
		wantCode(t, err, c.code)
		if c.code == bothy.CodeCommandNotFound && bothy.AsError(err).Hint == "" {
			t.Error("the error arrived without its hint")
		}
	}
}

func TestExecKeepsHeadAndTail(t *testing.T) {
	g := adopted(t)
	res, err := g.Exec(t.Context(), line(`echo first; head -c 30000000 /dev/zero | tr '\0' x; echo last`))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(res.Hint, "The command wrote ") {
		t.Errorf("nothing says how much was written: %q", res.Hint)
	}
	if !res.Truncated || len(res.Stdout) != bothy.DefaultExecOutputBytes ||
		!strings.HasPrefix(res.Stdout, "first\nx") || !strings.HasSuffix(res.Stdout, "xlast\n") {
		t.Errorf("truncated %v, %d bytes", res.Truncated, len(res.Stdout))
	}
}

func TestLongInput(t *testing.T) {
	g := adopted(t)
	req := args("sh", "-c", "wc -c")
	req.Stdin = strings.Repeat("0123456789", 200_000)
	if res, err := g.Exec(t.Context(), req); err != nil || strings.TrimSpace(res.Stdout) != "2000000" {
		t.Errorf("result %+v, %v", res, err)
	}
	req = args("true") // reads none of it
	req.Stdin = strings.Repeat("x", 2_000_000)
	if res, err := g.Exec(t.Context(), req); err != nil || res.ExitCode != 0 {
		t.Errorf("result %+v, %v", res, err)
	}
}

func TestExecStream(t *testing.T) {
	g := adopted(t)
	var text []byte
	var last bothy.ExecEvent
	err := g.ExecStream(t.Context(), line(`for i in 1 2 3; do echo $i; echo e$i >&2; done; printf '\377'; exit 4`), func(e bothy.ExecEvent) error {
		if e.Offset != int64(len(text)) || e.PID == 0 {
			t.Errorf("event %+v, want offset %d", e, len(text))
		}
		data := []byte(e.Data)
		if e.Encoding == "base64" {
			data, _ = base64.StdEncoding.DecodeString(e.Data)
		}
		text, last = append(text, data...), e
		return nil
	})
	if err != nil || !last.IsFinal || last.ExitCode != 4 {
		t.Errorf("last %+v, %v", last, err)
	}
	for _, want := range []string{"3\n", "e3\n", "\xff"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
}

// Zero bytes are valid text, but JSON escapes each of them as six bytes.
func TestExecStreamSendsControlCharactersInBase64(t *testing.T) {
	g := adopted(t)
	total := 0
	err := g.ExecStream(t.Context(), line(`head -c 100000 /dev/zero`), func(e bothy.ExecEvent) error {
		if len(e.Data) > 256 && e.Encoding != "base64" {
			t.Errorf("%d bytes at offset %d are not encoded in base64", len(e.Data), e.Offset)
		}
		data := []byte(e.Data)
		if e.Encoding == "base64" {
			data, _ = base64.StdEncoding.DecodeString(e.Data)
		}
		total += len(data)
		return nil
	})
	if total != 100000 || err != nil {
		t.Errorf("%d bytes of 100000, %v", total, err)
	}
}

// A chunk never ends in the middle of a UTF-8 character.
func TestExecStreamKeepsCharactersWhole(t *testing.T) {
	g := adopted(t)
	var text strings.Builder
	err := g.ExecStream(t.Context(), line(`printf '\303'; sleep 0.1; printf '\274'; for i in $(seq 40000); do printf 'ä€'; done`), func(e bothy.ExecEvent) error {
		if e.Encoding != "" {
			t.Errorf("event at %d is encoded: %q", e.Offset, e.Data)
		}
		text.WriteString(e.Data)
		return nil
	})
	if want := "ü" + strings.Repeat("ä€", 40000); err != nil || text.String() != want {
		t.Errorf("%d bytes of %d, %v", text.Len(), len(want), err)
	}
}

func TestExecStreamKillsTheCommandWhenItsReaderStops(t *testing.T) {
	g := adopted(t)
	stop := errors.New("enough")
	pid := 0
	err := g.ExecStream(t.Context(), line("echo ready; sleep 300"), func(e bothy.ExecEvent) error {
		pid = e.PID
		return stop
	})
	if !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	waitEnded(t, g, pid, 137)
	ctx, cancel := context.WithCancel(t.Context())
	err = g.ExecStream(ctx, line("echo ready; sleep 300"), func(e bothy.ExecEvent) error {
		pid = e.PID
		cancel()
		return nil
	})
	wantCode(t, err, bothy.CodeCommandCancelled)
	waitEnded(t, g, pid, 137)
}

func TestExecKeepsRunningAfterItsCallerLeft(t *testing.T) {
	g := adopted(t)
	file := filepath.Join(g.dir, "go")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		req := line("echo ready; while [ ! -e " + file + " ]; do sleep 0.01; done; echo done; exit 7")
		req.KeepRunning = true
		_, err := g.Exec(ctx, req)
		done <- err
	}()
	var p bothy.ProcessInfo
	for p.OutputEnd == 0 {
		list, err := g.Processes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 {
			p = list[0]
		}
	}
	cancel()
	err := <-done
	wantCode(t, err, bothy.CodeTimeout)
	if pid := fmt.Sprint(p.PID); !strings.Contains(bothy.AsError(err).Detail, "process "+pid) || !strings.Contains(bothy.AsError(err).Hint, "/processes/"+pid+"/") {
		t.Errorf("the error does not say which process continues: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var text string
	err = g.Output(t.Context(), p.PID, 0, func(e bothy.ExecEvent) error {
		text += e.Data
		if e.IsFinal && e.ExitCode != 7 {
			t.Errorf("final %+v", e)
		}
		return nil
	})
	if err != nil || text != "ready\ndone\n" {
		t.Errorf("got %q, %v", text, err)
	}
}

func waitEnded(t *testing.T, g *guest, pid, code int) {
	t.Helper()
	err := g.Output(t.Context(), pid, 0, func(e bothy.ExecEvent) error {
		if e.IsFinal && e.ExitCode != code {
			t.Errorf("final %+v, want exit code %d", e, code)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestBackground(t *testing.T) {
	g := adopted(t)
	req := line("echo started; read x; echo got $x; cat; exit 5")
	req.Background, req.Env = true, map[string]string{"K": "V"}
	res, err := g.Exec(t.Context(), req)
	if err != nil || res.PID == 0 {
		t.Fatal(res, err)
	}
	if err := g.Stdin(t.Context(), res.PID, []byte("one\n"), false); err != nil {
		t.Fatal(err)
	}
	if err := g.Stdin(t.Context(), res.PID, []byte("two\n"), true); err != nil {
		t.Fatal(err)
	}
	var text string
	if err := g.Output(t.Context(), res.PID, 3, func(e bothy.ExecEvent) error { text += e.Data; return nil }); err != nil {
		t.Fatal(err)
	}
	if want := "rted\ngot one\ntwo\n"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	list, err := g.Processes(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	p := list[0]
	if p.PID != res.PID || p.Running || p.ExitCode == nil || *p.ExitCode != 5 || p.Env["K"] != "V" || p.User != "root" || p.OutputEnd != 20 {
		t.Errorf("process %+v", p)
	}
	wantCode(t, g.Signal(t.Context(), res.PID, 15), bothy.CodeProcessNotFound)
	wantCode(t, g.Signal(t.Context(), 1, 15), bothy.CodeInvalid)
	wantCode(t, g.Signal(t.Context(), res.PID, 99), bothy.CodeInvalid)
	wantCode(t, g.Stdin(t.Context(), res.PID, []byte("x"), false), bothy.CodeConflict)
	wantCode(t, g.Output(t.Context(), 999999, 0, nil), bothy.CodeProcessNotFound)
}

// Processes that were not started through the API are listed too, and can be signalled.
func TestAllProcesses(t *testing.T) {
	g := adopted(t)
	req := line("sh -c 'echo $$; exec sleep 987' & wait; echo ended")
	req.Background = true
	res, err := g.Exec(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	var child bothy.ProcessInfo
	err = g.Output(t.Context(), res.PID, 0, func(e bothy.ExecEvent) error {
		text += e.Data
		if child.PID != 0 || !strings.Contains(text, "\n") {
			return nil
		}
		for child.PID == 0 { // until the shell has executed the other program
			all, err := g.AllProcesses(t.Context())
			if err != nil {
				return err
			}
			for _, p := range all {
				if fmt.Sprint(p.PID) == strings.TrimSpace(text) && strings.Join(p.Command, " ") == "sleep 987" {
					child = p
				}
				if p.PID == 1 || p.PID == g.process.Pid {
					return fmt.Errorf("a process of the sandbox's own machinery is listed: %+v", p)
				}
				if p.PID == res.PID && (p.Unmanaged || p.StartedAt == nil || p.MemoryBytes == 0 || p.ParentPID == 0) {
					return fmt.Errorf("the command: %+v", p)
				}
			}
		}
		return g.Signal(t.Context(), child.PID, 15)
	})
	if err != nil || !strings.HasSuffix(text, "ended\n") {
		t.Fatal(text, err)
	}
	if !child.Unmanaged || !child.Running || child.User != "root" || child.StartedAt == nil || time.Since(*child.StartedAt) > time.Hour || child.MemoryBytes == 0 || child.OutputEnd != 0 {
		t.Errorf("%+v", child)
	}
	wantCode(t, g.Signal(t.Context(), child.PID, 15), bothy.CodeProcessNotFound)
	wantCode(t, g.Signal(t.Context(), g.process.Pid, 9), bothy.CodeInvalid)
	if list, err := g.Processes(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestTerminal(t *testing.T) {
	g := adopted(t)
	term, err := g.Terminal(t.Context(), bothy.TerminalRequest{Command: bothy.Command{Args: []string{"sh", "-c", "stty size; read x; stty size; echo $TERM:$x; exit 6"}}, Cols: 100, Rows: 40})
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	if err := term.Resize(90, 30); err != nil {
		t.Fatal(err)
	}
	if _, err := term.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(term)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"30 90", "xterm-256color:hello"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%q is not in %q", want, b)
		}
	}
	if code, err := term.Wait(); code != 6 || err != nil || term.PID() == 0 {
		t.Errorf("ended with %d, %v", code, err)
	}
}

func TestTerminalHangsUp(t *testing.T) {
	g := adopted(t)
	term, err := g.Terminal(t.Context(), bothy.TerminalRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := term.Write([]byte("echo rea''dy\n")); err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(term); s.Scan() && !strings.Contains(s.Text(), "ready"); {
	}
	if err := term.Close(); err != nil {
		t.Error(err)
	}
	waitEnded(t, g, term.PID(), 129)
	_, err = g.Terminal(t.Context(), bothy.TerminalRequest{Command: bothy.Command{Args: []string{"no-such-shell"}}})
	wantCode(t, err, bothy.CodeCommandNotFound)
}

func TestFiles(t *testing.T) {
	g := adopted(t)
	ctx := t.Context()
	at := time.Unix(1_600_000_000, 123_000_000).UTC()
	info, err := g.Write(ctx, "a/b.txt", strings.NewReader("hello"), bothy.WriteOptions{Mode: 0o640, ModifiedAt: at})
	if err != nil {
		t.Fatal(err)
	}
	if info.Path != g.dir+"/a/b.txt" || info.Size != 5 || info.Mode != "0640" || info.Owner != "root" || info.Type != bothy.FileRegular {
		t.Errorf("written %+v", info)
	}
	r, info, err := g.Read(ctx, "a/b.txt", "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	r.Close()
	if err != nil || string(b) != "hello" || info.Size != 5 {
		t.Errorf("read %q, %+v, %v", b, info, err)
	}
	stat, err := g.Stat(ctx, g.dir+"/a/b.txt", "root")
	if err != nil || *stat != *info {
		t.Errorf("stat %+v, %v, want %+v", stat, err, info)
	}
	if list, err := g.List(ctx, "", "", 2); bothy.ErrorCode(err) != bothy.CodePathInvalid {
		t.Errorf("empty path: %v, %v", list, err)
	}
	list, err := g.List(ctx, ".", "", 2)
	if err != nil || len(list) != 2 || list[0].Type != bothy.FileDirectory || list[1] != *info {
		t.Errorf("list %+v, %v", list, err)
	}
	if info, err := g.Mkdir(ctx, "x/y", ""); err != nil || info.Type != bothy.FileDirectory || info.Mode != "0755" {
		t.Errorf("mkdir %+v, %v", info, err)
	}
	if info, err := g.Move(ctx, "a/b.txt", "x/z/c.txt", ""); err != nil || info.Name != "c.txt" {
		t.Errorf("move %+v, %v", info, err)
	}
	if err := g.Remove(ctx, "x", ""); err != nil {
		t.Error(err)
	}
	wantCode(t, g.Remove(ctx, "x", ""), bothy.CodeFileNotFound)
	for _, path := range []string{"x\x00y", "\xff\xfe"} {
		_, _, err = g.Read(ctx, path, "")
		wantCode(t, err, bothy.CodePathInvalid)
	}
	_, err = g.Stat(ctx, "\xff", "")
	wantCode(t, err, bothy.CodeInvalid)
	_, _, err = g.Read(ctx, "none", "")
	wantCode(t, err, bothy.CodeFileNotFound)
	_, _, err = g.Read(ctx, ".", "")
	wantCode(t, err, bothy.CodeIsADirectory)
	_, err = g.Write(ctx, "f", strings.NewReader(""), bothy.WriteOptions{User: "who"})
	wantCode(t, err, bothy.CodeUserNotFound)
	_, err = g.Write(ctx, "f", io.MultiReader(strings.NewReader("half"), failing{}), bothy.WriteOptions{})
	if err == nil || !errors.Is(err, errFailing) {
		t.Errorf("write from a failing reader: %v", err)
	}
	for { // the guest notices asynchronously
		left, err := os.ReadDir(g.dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 1 { // the folder a
			break
		}
		time.Sleep(time.Millisecond)
	}
}

var errFailing = errors.New("failing reader")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFailing }

func TestBigFile(t *testing.T) {
	g := adopted(t)
	big := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	if _, err := g.Write(t.Context(), "big", bytes.NewReader(big), bothy.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	r, _, err := g.Read(t.Context(), "big", "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes of %d, %v", len(got), len(big), err)
	}
	stats, err := g.Stats(t.Context())
	if err != nil || stats.GuestRSSBytes > 40<<20 || stats.Processes == 0 || stats.MemoryTotalBytes == 0 || stats.DiskTotalBytes == 0 {
		t.Errorf("stats %+v, %v", stats, err)
	}
}

func TestArchive(t *testing.T) {
	g := adopted(t)
	ctx := t.Context()
	if _, err := g.Write(ctx, "src/run", strings.NewReader("#!"), bothy.WriteOptions{Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	r, err := g.ReadArchive(ctx, "src", "", bothy.ArchiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.WriteArchive(ctx, "dst", "", r); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if info, err := g.Stat(ctx, "dst/run", ""); err != nil || info.Mode != "0755" || info.Size != 2 {
		t.Errorf("unpacked %+v, %v", info, err)
	}
	_, err = g.ReadArchive(ctx, "none", "", bothy.ArchiveOptions{})
	wantCode(t, err, bothy.CodeFileNotFound)
	wantCode(t, g.WriteArchive(ctx, "dst", "", strings.NewReader(strings.Repeat("no tar", 1000))), bothy.CodeInvalid)
}

func TestWatch(t *testing.T) {
	g := adopted(t)
	if _, err := g.Mkdir(t.Context(), "w/old", ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var seen []string
	var once sync.Once
	beat := make(chan struct{})
	go func() { // writes until the watch has begun
		for {
			select {
			case <-beat:
				return
			case <-time.After(5 * time.Millisecond):
				os.WriteFile(g.dir+"/w/beat", []byte("x"), 0o644)
			}
		}
	}()
	err := g.Watch(ctx, "w", "", true, func(e bothy.FileEvent) error {
		once.Do(func() {
			close(beat)
			os.MkdirAll(g.dir+"/w/new/deep", 0o755)
			os.WriteFile(g.dir+"/w/new/deep/file", []byte("x"), 0o644)
			os.Rename(g.dir+"/w/old", g.dir+"/w/renamed")
			os.Chmod(g.dir+"/w/renamed", 0o700)
			os.WriteFile(g.dir+"/w/last", nil, 0o644)
			os.Remove(g.dir + "/w/last")
		})
		if e.Path != g.dir+"/w/"+e.Name {
			t.Errorf("event %+v", e)
		}
		seen = append(seen, e.Type+" "+e.Name)
		if e.Name == "last" && e.Type == "remove" {
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	all := strings.Join(seen, "\n") + "\n"
	for _, want := range []string{"create new", "create new/deep", "create new/deep/file", "rename old", "create renamed", "chmod renamed", "create last", "remove last"} {
		if !strings.Contains(all, want+"\n") {
			t.Errorf("%q is not among:\n%s", want, all)
		}
	}
	wantCode(t, g.Watch(t.Context(), "none", "", false, nil), bothy.CodeFileNotFound)
}

func TestAdoption(t *testing.T) {
	g := boot(t)
	ctx := t.Context()
	_, err := g.Exec(ctx, args("true"))
	wantCode(t, err, bothy.CodeGuest)
	_, err = g.Adopt(ctx, client.Identity{Key: ""})
	wantCode(t, err, bothy.CodeInvalid)
	id := client.Identity{
		Key: "first", Hostname: "box-1", Env: map[string]string{"FROM": "adoption"}, Cwd: g.dir + "/new",
		ResolvConf: "nameserver 10.0.0.1\n", CABundle: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	}
	for range 2 { // the second call simulates a retry after a lost response
		res, err := g.Adopt(ctx, id)
		if err != nil || len(res.Warnings) > 0 || res.Version == "" || !strings.HasPrefix(res.Kernel, "Linux") || res.ClockSkew.Abs() > time.Minute {
			t.Fatal(res, err)
		}
	}
	read := func(path string) string {
		b, err := os.ReadFile(g.root + path)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if read("/etc/hostname") != "box-1\n" || !strings.Contains(read("/etc/hosts"), "10.0.0.2\tbox-1\n") ||
		read("/etc/resolv.conf") != id.ResolvConf || read("/etc/ssl/certs/ca-certificates.crt") != id.CABundle {
		t.Error("the identity files are wrong")
	}
	machine, generation := read("/etc/machine-id"), read("/run/bothy/generation")
	if len(machine) != 33 || len(generation) != 33 {
		t.Errorf("machine id %q, generation %q", machine, generation)
	}
	// A user's lines in /etc/hosts stay when a copy gets another name.
	write := func(text string) {
		if err := os.WriteFile(g.root+"/etc/hosts", []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	write("10.0.0.9 db # box-1\n10.0.0.2 app.test\n" + read("/etc/hosts") + "10.0.0.8 cache")
	id.Hostname = "box-2"
	if _, err := g.Adopt(ctx, id); err != nil {
		t.Fatal(err)
	}
	if want := "10.0.0.9 db # box-1\n10.0.0.2 app.test\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n10.0.0.2\tbox-2\n10.0.0.8 cache\n"; read("/etc/hosts") != want {
		t.Errorf("/etc/hosts is %q", read("/etc/hosts"))
	}
	req := line("echo $FROM; pwd")
	req.Cwd = "/"
	if res, err := g.Exec(ctx, req); err != nil || res.Stdout != "adoption\n/\n" {
		t.Errorf("%+v, %v", res, err)
	}

	// A copy is adopted with its parent's key and then gets a key of its own.
	stranger := client.New(g.dial, "wrong")
	_, err = stranger.Adopt(ctx, client.Identity{Key: "stolen"})
	wantCode(t, err, bothy.CodeGuest)
	host := client.New(g.dial, "first")
	defer host.CloseIdle()
	if _, err := host.Adopt(ctx, client.Identity{Key: "second", Hostname: "box-2"}); err != nil {
		t.Fatal(err)
	}
	_, err = g.Exec(ctx, args("true"))
	wantCode(t, err, bothy.CodeGuest)
	if err := host.Remove(ctx, "none", ""); bothy.ErrorCode(err) != bothy.CodeFileNotFound {
		t.Error(err)
	}
	if read("/etc/machine-id") == machine || read("/run/bothy/generation") == generation || read("/etc/hostname") != "box-2\n" {
		t.Error("the copy still has its parent's identity")
	}
	_, err = host.Adopt(ctx, client.Identity{Key: "third", Hostname: "no/host name"})
	wantCode(t, err, bothy.CodeInvalid)
}

// A user may replace the identity files with anything; adoption must still succeed.
func TestAdoptionWithDamagedIdentityFiles(t *testing.T) {
	g := adopted(t)
	os.Remove(g.root + "/etc/hostname")
	if res, err := g.Exec(t.Context(), args("mkfifo", g.root+"/etc/hostname")); err != nil || res.ExitCode != 0 {
		t.Fatal(res, err)
	}
	os.RemoveAll(g.root + "/run")
	os.WriteFile(g.root+"/run", nil, 0o644)
	res, err := g.Adopt(t.Context(), client.Identity{Key: "next", Hostname: "again"})
	if err != nil || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "/run") {
		t.Errorf("%+v, %v", res, err)
	}
	if b, _ := os.ReadFile(g.root + "/etc/hostname"); string(b) != "again\n" {
		t.Errorf("host name %q", b)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	g := adopted(t)
	if err := errors.Join(g.Freeze(t.Context()), g.Thaw(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestKillLargest(t *testing.T) {
	g := adopted(t)
	if v, err := g.KillLargest(t.Context(), 1<<20); v != nil || err != nil {
		t.Errorf("without a process: %+v, %v", v, err)
	}
	results := make(chan *bothy.ExecResult)
	go func() {
		res, err := g.Exec(t.Context(), line("echo ready; head -c 64m /dev/zero | tail -c 64m | sleep 300"))
		if err != nil {
			t.Error(err)
		}
		results <- res
	}()
	for {
		list, err := g.Processes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 && list[0].OutputEnd > 0 {
			break
		}
	}
	v, err := g.KillLargest(t.Context(), 256<<20)
	if err != nil || v == nil || v.CommandPID == 0 || v.RSSBytes == 0 || v.Name == "" {
		t.Fatal(v, err)
	}
	if err := g.Signal(t.Context(), v.CommandPID, 9); err != nil && bothy.ErrorCode(err) != bothy.CodeProcessNotFound {
		t.Fatal(err)
	}
	if res := <-results; res != nil && (!res.OOMKilled || !strings.Contains(res.Hint, "256 MB")) {
		t.Errorf("result %+v", res)
	}
}

func TestUnreachableGuest(t *testing.T) {
	c := client.New(func(context.Context) (net.Conn, error) { return nil, errors.New("no network device") }, "")
	_, err := c.Exec(t.Context(), args("true"))
	wantCode(t, err, bothy.CodeGuest)
	if bothy.AsError(err).Hint == "" {
		t.Error("no hint")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	wantCode(t, c.WaitReady(ctx), bothy.CodeGuest)
	wantCode(t, func() error { _, err := c.Stat(ctx, "x", ""); return err }(), bothy.CodeTimeout)
}

// cpu returns the processor time that a process has used, without its children.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/schedstat", pid)); err != nil {
		b.Skip(err)
	}
	var total time.Duration
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		var ns int64
		fmt.Sscan(string(text), &ns)
		total += time.Duration(ns)
	}
	return total
}

// bench runs fn and reports the processor time it costs on both sides, which does not depend on
// the load of the machine.
func bench(b *testing.B, g *guest, fn func() error) {
	ours, theirs := cpu(b, os.Getpid()), cpu(b, g.process.Pid)
	for b.Loop() {
		if err := fn(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu(b, os.Getpid())-ours).Microseconds())/float64(b.N), "host-cpu-µs/op")
	b.ReportMetric(float64((cpu(b, g.process.Pid)-theirs).Microseconds())/float64(b.N), "guest-cpu-µs/op")
}

func BenchmarkExec(b *testing.B) {
	g := adopted(b)
	bench(b, g, func() error {
		_, err := g.Exec(b.Context(), args("/bin/true"))
		return err
	})
}

func BenchmarkStat(b *testing.B) {
	g := adopted(b)
	bench(b, g, func() error {
		_, err := g.Stat(b.Context(), "/", "")
		return err
	})
}

func BenchmarkReadSmallFile(b *testing.B) {
	g := adopted(b)
	if _, err := g.Write(b.Context(), "f", strings.NewReader(strings.Repeat("x", 4096)), bothy.WriteOptions{}); err != nil {
		b.Fatal(err)
	}
	bench(b, g, func() error {
		r, _, err := g.Read(b.Context(), "f", "")
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(io.Discard, r)
		return err
	})
}

func BenchmarkOutput(b *testing.B) {
	g := adopted(b)
	const size = 64 << 20
	b.SetBytes(size)
	bench(b, g, func() error {
		return g.ExecStream(b.Context(), args("head", "-c", fmt.Sprint(size), "/dev/zero"), func(bothy.ExecEvent) error { return nil })
	})
}

// withoutBash returns an agent in a chroot that has busybox or dash, but no bash.
func withoutBash(t *testing.T) *guest {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can change its root")
	}
	binary, err := agentBinary()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	run := func(name string, args ...string) {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", name, err, out)
		}
	}
	for _, dir := range []string{"bin", "dev", "etc", "tmp", "work", "root", "run"} {
		run("mkdir", "-p", filepath.Join(root, dir))
	}
	run("cp", binary, filepath.Join(root, "guest"))
	run("sh", "-c", "cp --parents -L $(command -v dash) $(command -v ls) $(ldd $(command -v dash) $(command -v ls) | grep -o '/[^ :]*' | sort -u) "+root)
	run("sh", "-c", "ln -s $(command -v dash) "+root+"/bin/sh; echo root:x:0:0::/root:/bin/sh > "+root+"/etc/passwd; echo root:x:0: > "+root+"/etc/group; mknod "+root+"/dev/null c 1 3")
	cmd := exec.Command("chroot", root, "/guest", "-listen", "127.0.0.1:0", "-user", "root", "-cwd", "/work", "-root", "/tmp")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{dir: "/work", process: cmd.Process}
	g.Client = client.New(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", strings.TrimSpace(address))
	}, "")
	t.Cleanup(g.CloseIdle)
	if err := g.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Adopt(t.Context(), client.Identity{Key: testKey}); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestImagesWithoutBash(t *testing.T) {
	g := withoutBash(t)
	if res, err := g.Exec(t.Context(), line("echo a | { read x; echo $x $0; }; exit 4")); err != nil || res.ExitCode != 4 || !strings.HasPrefix(res.Stdout, "a ") {
		t.Errorf("%+v, %v", res, err)
	}
	_, err := g.Exec(t.Context(), args("/bin/bash", "script"))
	wantCode(t, err, bothy.CodeCommandNotFound)
	_, err = g.RunCode(t.Context(), bothy.CodeRequest{Code: "true", Language: "bash"})
	wantCode(t, err, bothy.CodeUnsupported)
	if err := g.Remove(t.Context(), "/bin/sh", ""); err != nil {
		t.Fatal(err)
	}
	_, err = g.Exec(t.Context(), line("true"))
	wantCode(t, err, bothy.CodeCommandNotFound)
	if e := bothy.AsError(err); !strings.Contains(e.Detail, "no shell") || e.Hint == "" {
		t.Errorf("%+v", e)
	}
}

func TestExecPassesBinaryDataUnchanged(t *testing.T) {
	g := adopted(t)
	raw := []byte{0, 0xff, 'a', 0xfe, '\n'}
	req := line("cat; printf 'err\\200' >&2")
	req.Stdin = string(raw)
	res, err := g.Exec(t.Context(), req)
	if err != nil || res.Stdout != "\x00\uFFFDa\uFFFD\n" || res.StdoutBase64 != base64.StdEncoding.EncodeToString(raw) {
		t.Errorf("%+v, %v", res, err)
	}
	if b, err := base64.StdEncoding.DecodeString(res.StderrBase64); err != nil || string(b) != "err\x80" {
		t.Errorf("%q, %v", b, err)
	}
	if res, err := g.Exec(t.Context(), line("echo ü")); err != nil || res.Stdout != "ü\n" || res.StdoutBase64 != "" {
		t.Errorf("%+v, %v", res, err)
	}
}

// Both streams arrive as one, in the order in which they were written.
func TestExecMergesStderr(t *testing.T) {
	g := adopted(t)
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
	}
	const script = "for i in $(seq 0 199); do echo out $i; echo err $i >&2; done"
	for name, req := range map[string]bothy.ExecRequest{"plain": line(script), "with input": {Command: bothy.Command{Line: script}, Stdin: "x"}} {
		req.MergeStderr = true
		res, err := g.Exec(t.Context(), req)
		if err != nil || res.Stdout != want.String() || res.Stderr != "" {
			t.Errorf("%s: %v: %d bytes, %q", name, err, len(res.Stdout), res.Stderr)
		}
	}
}
