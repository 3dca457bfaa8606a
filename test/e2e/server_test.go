package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// server is a bothy server with a home of its own. It can be killed and started
// again.
type server struct {
	*client.Client
	dir       string // holds everything; home is in it
	home      string
	templates string
	url       string
	listen    string
	key       string

	cmd   *exec.Cmd
	ended chan error

	// args and env are more for the server.
	args, env []string

	// seen are sandboxes that a test is done with.
	seen map[string]bool

	mu  sync.Mutex
	log []string
}

// newServer makes the folder of a server. Everybody may pass through it, because
// the sentries are nobody.
func newServer() (*server, error) {
	templates, err := templatesFolder()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/var/tmp", "bothy-e2e-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	return &server{dir: dir, home: filepath.Join(dir, "home"), templates: templates, seen: map[string]bool{}}, nil
}

// stoppedServer is a server for one test, to be started. It is shut down when the
// test ends.
func stoppedServer(t *testing.T) *server {
	t.Helper()
	s, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.shutDown(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			s.showLog(t.Output())
		}
	})
	return s
}

// ownServer is a server for one test. It makes nothing by itself, so that all
// there is on the host is what the test asked for.
func ownServer(t *testing.T) *server {
	t.Helper()
	s := stoppedServer(t)
	s.env = []string{"BOTHY_POOL=off"}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s
}

var readyLine = regexp.MustCompile(`msg=ready url=(https?://\S+)`)

// start runs the program until it is ready, with more in its environment. The key
// is the same each time, the address is not.
func (s *server) start(env ...string) error {
	credentials := filepath.Join(s.dir, "credentials.json")
	cmd := exec.Command(program, "serve", "--listen", "127.0.0.1:0", "--bootstrap-credentials", credentials)
	cmd.Args = append(cmd.Args, s.args...)
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "BOTHY_HOME="+s.home, "BOTHY_TEMPLATES="+s.templates)
	cmd.Env = append(append(cmd.Env, s.env...), env...)
	cmd.Dir = "/"
	// A terminal's Ctrl-C is for the tests, which then end the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stderr = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return err
	}
	s.cmd, s.ended = cmd, make(chan error, 1)
	ready := make(chan string, 1)
	go s.follow(r, ready)
	go func() { s.ended <- cmd.Wait() }()
	select {
	case s.url = <-ready:
		_, s.listen, _ = strings.Cut(s.url, "://")
	case err := <-s.ended:
		s.cmd = nil
		return fmt.Errorf("the server ended at once: %v", err)
	case <-time.After(hangs):
		return errors.Join(fmt.Errorf("the server was not ready within %s", hangs), s.kill())
	}
	return s.connect(credentials)
}

// follow keeps the log and reports the address.
func (s *server) follow(r io.ReadCloser, ready chan<- string) {
	defer r.Close()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.mu.Lock()
		s.log = append(s.log, lines.Text())
		s.mu.Unlock()
		if m := readyLine.FindStringSubmatch(lines.Text()); m != nil {
			ready <- m[1]
		}
	}
}

func (s *server) connect(credentials string) error {
	var c client.Credentials
	b, err := os.ReadFile(credentials)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		return err
	}
	s.key = c.APIKey
	s.Client = client.New(s.url, s.key)
	return nil
}

// kill ends the server as a crash does.
func (s *server) kill() error { return s.end(syscall.SIGKILL) }

// stop ends the server as an operator does; the sandboxes live on.
func (s *server) stop() error { return s.end(syscall.SIGTERM) }

// dies waits until the server has killed itself.
func (s *server) dies() error {
	select {
	case <-s.ended:
		s.cmd = nil
		return nil
	case <-time.After(hangs):
		return fmt.Errorf("the server still runs after %s", hangs)
	}
}

func (s *server) end(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-s.ended:
		s.cmd = nil
		if sig != syscall.SIGKILL && err != nil {
			return fmt.Errorf("the server ended badly: %w", err)
		}
		return nil
	case <-time.After(hangs):
		return fmt.Errorf("the server did not end within %s of %s", hangs, sig)
	}
}

// shutDown ends the sandboxes and the server, and reports what is left of them.
func (s *server) shutDown() error {
	var errs []error
	if s.cmd != nil {
		errs = append(errs, s.terminateAll(), s.stop(), s.leftovers())
	}
	errs = append(errs, s.sweep(), os.RemoveAll(s.dir))
	return errors.Join(errs...)
}

func (s *server) terminateAll() error {
	if s.Client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	live, err := s.sandboxes(ctx, bothy.StateStarting, bothy.StateRunning, bothy.StateStopping, bothy.StatePaused)
	errs := []error{err}
	for _, sb := range live {
		errs = append(errs, s.Sandboxes.Terminate(ctx, sb.ID))
	}
	return errors.Join(errs...)
}

// sandboxes lists those in some states, or all.
func (s *server) sandboxes(ctx context.Context, states ...bothy.State) ([]*bothy.Sandbox, error) {
	var all []*bothy.Sandbox
	f := bothy.SandboxFilter{States: states, Limit: 1000}
	for {
		page, err := s.Sandboxes.List(ctx, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if f.Cursor = page.NextCursor; f.Cursor == "" {
			return all, nil
		}
	}
}

// showLog prints the end of the server's log.
func (s *server) showLog(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(w, "the end of the server's log:\n%s\n", strings.Join(s.log[max(0, len(s.log)-200):], "\n"))
}
