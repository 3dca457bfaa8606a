package ssh

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// connected returns both ends of a connection.
func connected(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// pair connects a client with a server.
func pair(t *testing.T, cfg Config) *ssh.Client {
	t.Helper()
	near, far := connected(t)
	cfg.HostKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	cfg.Shell = "/bin/sh"
	if cfg.Home == "" {
		cfg.Home = t.TempDir()
	}
	cfg.Env = append(cfg.Env, "PATH="+os.Getenv("PATH"))
	served := make(chan error, 1)
	go func() { served <- Serve(far, cfg) }()
	public, err := ssh.NewPublicKey(cfg.HostKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	conn, channels, requests, err := ssh.NewClientConn(near, "sandbox", &ssh.ClientConfig{User: "any", HostKeyCallback: ssh.FixedHostKey(public)})
	if err != nil {
		t.Fatal(err)
	}
	c := ssh.NewClient(conn, channels, requests)
	t.Cleanup(func() {
		c.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

func open(t *testing.T, c *ssh.Client) *ssh.Session {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestCommands(t *testing.T) {
	home := t.TempDir()
	c := pair(t, Config{Home: home, Env: []string{"GIVEN=1"}})
	s := open(t, c)
	if err := s.Setenv("SENT", "two words"); err != nil {
		t.Error(err)
	}
	s.Stdin = strings.NewReader("input")
	var errs bytes.Buffer
	s.Stderr = &errs
	out, err := s.Output(`echo "$GIVEN $SENT"; pwd; cat; echo wrong >&2; exit 7`)
	var exit *ssh.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 7 {
		t.Errorf("the command ends with %v", err)
	}
	if want := "1 two words\n" + home + "\ninput"; string(out) != want || errs.String() != "wrong\n" {
		t.Errorf("got %q and %q, want %q", out, errs.String(), want)
	}
	if err := open(t, c).Run("kill -USR1 $$"); !errors.As(err, &exit) || exit.Signal() != "USR1" {
		t.Errorf("a killed command ends with %v", err)
	}
	s = open(t, c)
	pipe, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("echo ready; exec sleep 1000"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(pipe, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(ssh.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); !errors.As(err, &exit) || exit.Signal() != "TERM" {
		t.Errorf("after a signal the command ends with %v", err)
	}
}

func TestTerminal(t *testing.T) {
	s := open(t, pair(t, Config{}))
	if err := s.RequestPty("vt100", 30, 100, ssh.TerminalModes{}); err != nil {
		t.Fatal(err)
	}
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(`stty -echo; echo "$TERM $(stty size) $0"; read x; stty size; tty; exit 5`); err != nil {
		t.Fatal(err)
	}
	text := readTo(t, out, "\n")
	if !strings.Contains(text, "vt100 30 100 /bin/sh") {
		t.Errorf("the terminal is %q", text)
	}
	if err := s.WindowChange(40, 120); err != nil {
		t.Fatal(err)
	}
	// What is typed may overtake the change of size, but not the answer to a later request.
	if _, err := s.SendRequest("any", true, nil); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "go")
	rest, _ := io.ReadAll(out)
	var exit *ssh.ExitError
	if err := s.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 5 {
		t.Errorf("the command ends with %v", err)
	}
	if !strings.Contains(string(rest), "40 120\r\n/dev/pts/") {
		t.Errorf("after a change of size: %q", rest)
	}
}

func readTo(t *testing.T, r io.Reader, end string) string {
	t.Helper()
	var text []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(text), end); {
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		text = append(text, b...)
	}
	return string(text)
}

func TestWhatASessionLeavesRunningLives(t *testing.T) {
	home := t.TempDir()
	c := pair(t, Config{Home: home})
	if err := open(t, c).Run("sleep 1000 >/dev/null 2>&1 </dev/null & echo $! >pid"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(home, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	_ = c.Wait()
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the background process: %v", err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

func TestFiles(t *testing.T) {
	home := t.TempDir()
	c, err := sftp.NewClient(pair(t, Config{Home: home}))
	if err != nil {
		t.Fatal(err)
	}
	if at, err := c.Getwd(); at != home || err != nil {
		t.Errorf("files are in %q, %v", at, err)
	}
	f, err := c.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("data"), 1<<18)
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(home, "file")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := c.PosixRename("file", "other"); err != nil {
		t.Error(err)
	}
	c.Close()
}

func TestForwarding(t *testing.T) {
	c := pair(t, Config{})
	echo := func(l net.Listener) {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}
	// try checks that both ends of a stream arrive.
	try := func(what string, conn net.Conn, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "hello")
		if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if text, err := io.ReadAll(conn); string(text) != "hello" || err != nil {
			t.Errorf("%s: %q, %v", what, text, err)
		}
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	go echo(tcp)
	path := filepath.Join(t.TempDir(), "socket")
	local, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	go echo(local)
	conn, err := c.Dial("tcp", tcp.Addr().String())
	try("a port of the sandbox", conn, err)
	conn, err = c.Dial("unix", path)
	try("a socket of the sandbox", conn, err)

	// Whatever address the client names, the port is on the loopback.
	back, err := c.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	go echo(back)
	at := fmt.Sprintf("127.0.0.1:%d", back.Addr().(*net.TCPAddr).Port)
	conn, err = net.Dial("tcp", at)
	try("a port of the client", conn, err)
	if err := back.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", at); err == nil {
		conn.Close()
		t.Error("the port is still forwarded")
	}
	tcp.Close()
	if conn, err := c.Dial("tcp", tcp.Addr().String()); err == nil {
		conn.Close()
		t.Error("a closed port was reached")
	}
}

func TestWhatIsRefused(t *testing.T) {
	c := pair(t, Config{})
	s := open(t, c)
	for _, what := range []string{"auth-agent-req@openssh.com", "x11-req", "unknown"} {
		if ok, err := s.SendRequest(what, true, nil); ok || err != nil {
			t.Errorf("%s: %v, %v", what, ok, err)
		}
	}
	if out, err := s.Output("echo $SSH_AUTH_SOCK"); string(out) != "\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if err := open(t, c).RequestSubsystem("other"); err == nil {
		t.Error("an unknown subsystem was started")
	}
	var refused *ssh.OpenChannelError
	if _, _, err := c.OpenChannel("tun@openssh.com", nil); !errors.As(err, &refused) || refused.Reason != ssh.UnknownChannelType {
		t.Errorf("a tunnel device: %v", err)
	}
	if ok, _, err := c.SendRequest("keepalive@openssh.com", true, nil); ok || err != nil {
		t.Errorf("keepalive: %v, %v", ok, err)
	}
}

func TestChannelsAreLimited(t *testing.T) {
	c := pair(t, Config{})
	for range maxChannels {
		open(t, c)
	}
	var refused *ssh.OpenChannelError
	if _, err := c.NewSession(); !errors.As(err, &refused) || refused.Reason != ssh.ResourceShortage {
		t.Errorf("one too many: %v", err)
	}
}

// A client that has gone without a word, as the one of the sandbox that was copied, is cut off.
func TestASilentClientIsCutOff(t *testing.T) {
	near, far := connected(t)
	defer near.Close()
	served := make(chan error, 1)
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	go func() {
		served <- Serve(far, Config{HostKey: key, Home: "/", Shell: "/bin/sh", Keepalive: 50 * time.Millisecond})
	}()
	_, _, requests, err := ssh.NewClientConn(near, "sandbox", &ssh.ClientConfig{User: "any", HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		t.Fatal(err)
	}
	if r := <-requests; r.Type != "keepalive@openssh.com" || !r.WantReply {
		t.Errorf("the first request is %q", r.Type)
	}
	if err := <-served; err != nil { // no answer was sent
		t.Error(err)
	}
}
