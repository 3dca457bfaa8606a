package testserver

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/internal/freeport"
)

// Server is a server with its own home, and a client of it while it runs. It
// can be killed and started again; its key stays the same. While it is started or
// ended nothing but its log may be read.
type Server struct {
	*client.Client
	// Dir holds everything of the server, and Home, in it, its state.
	Dir, Home string
	// TemplatesDir is the folder of its templates, at first links to those that were prepared.
	TemplatesDir string
	// Address is the host and port where it listens since the last start, and Key
	// what the client uses.
	Address, Key string

	// What follows counts from the next start on.

	// Binary is the path of another build of the program, or "".
	Binary string
	// Args and Env are more for the program, and win over what it gets otherwise.
	Args, Env []string
	// Wrap is a command that becomes the program, which it gets as its last
	// arguments.
	Wrap []string
	// Store is the URL of the database for its records, or "" for files.
	Store string
	// Settings is the text of its configuration, or "".
	Settings string
	// NoPool keeps it from making anything by itself, so that all there is on the
	// host is what the test asked for.
	NoPool bool
	// SameAddress has it listen at one address at every start.
	SameAddress bool

	program string

	// address is for SameAddress, and its own until taken is closed.
	address string
	taken   io.Closer

	cmd   *exec.Cmd // nil unless it runs
	ended chan *os.ProcessState

	mu  sync.Mutex
	log []string
	// races is set if a program that was built with the race detector has reported one.
	races bool
}

// newServer makes the folder of a server. Everybody may pass through it, because
// the sentries run without privileges.
func newServer() (*Server, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	database, err := newDatabase()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/var/tmp", "bothy-server-")
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, Home: filepath.Join(dir, "home"), TemplatesDir: filepath.Join(dir, "templates"), Store: database, program: program}
	if err := errors.Join(os.Chmod(dir, 0o711), ownTemplates(s.TemplatesDir)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// Stopped returns a server for one test, to be started. It is shut down when the
// test ends.
func Stopped(t *testing.T) *Server {
	t.Helper()
	s, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.ShutDown(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			s.ShowLog(t.Output())
		}
	})
	return s
}

// outputPatience is how long the output of a server is waited for after its end, should another
// process hold its output open.
const outputPatience = 2 * time.Second

var readyLine = regexp.MustCompile(`msg=ready url=(https?://\S+)`)

// Start runs the program until it is ready, with failpoints that are armed in it
// until it ends, such as lifecycle.freeze=kill.
func (s *Server) Start(failpoints ...string) error {
	credentials := filepath.Join(s.Dir, "credentials.json")
	cmd, err := s.command(credentials, failpoints)
	if err != nil {
		return err
	}
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
	ended, ready := make(chan *os.ProcessState, 1), make(chan string, 1)
	s.cmd, s.ended = cmd, ended
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.follow(r, ready)
	}()
	go func() {
		_ = cmd.Wait() // the state says how it ended
		select {
		case <-followed: // the rest of its output is in the log
		case <-time.After(outputPatience):
		}
		ended <- cmd.ProcessState
	}()
	select {
	case url := <-ready:
		return s.connect(url, credentials)
	case state := <-ended:
		s.cmd = nil
		return fmt.Errorf("the server ended at once: %v", state)
	case <-time.After(Hangs):
		return errors.Join(fmt.Errorf("the server was not ready within %s", Hangs), s.Kill())
	}
}

func (s *Server) command(credentials string, failpoints []string) (*exec.Cmd, error) {
	listen := "127.0.0.1:0"
	if s.SameAddress {
		if s.taken == nil {
			var err error
			if s.address, s.taken, err = freeport.Take("127.0.0.1"); err != nil {
				return nil, err
			}
		}
		listen = s.address
	}
	args := []string{"serve", "--listen", listen, "--bootstrap-credentials", credentials}
	if s.Settings != "" {
		config := filepath.Join(s.Dir, "bothy.yaml")
		if err := os.WriteFile(config, []byte(s.Settings), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--config", config)
	}
	words := slices.Concat(s.Wrap, []string{cmp.Or(s.Binary, s.program)}, args, s.Args)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+s.Dir, "BOTHY_HOME="+s.Home, "BOTHY_TEMPLATES="+s.TemplatesDir, "BOTHY_STORE="+s.Store,
		failpoint.Env+"="+strings.Join(failpoints, ","))
	if s.NoPool {
		cmd.Env = append(cmd.Env, "BOTHY_POOL=off")
	}
	cmd.Env = append(cmd.Env, s.Env...)
	cmd.Dir = "/"
	// A terminal's Ctrl-C is for the tests, which then end the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

// follow keeps the log and reports the URL.
func (s *Server) follow(r io.ReadCloser, ready chan<- string) {
	defer r.Close()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.mu.Lock()
		s.log = append(s.log, lines.Text())
		s.races = s.races || strings.Contains(lines.Text(), "WARNING: DATA RACE")
		s.mu.Unlock()
		if m := readyLine.FindStringSubmatch(lines.Text()); m != nil {
			ready <- m[1]
		}
	}
}

func (s *Server) connect(url, credentials string) error {
	_, s.Address, _ = strings.Cut(url, "://")
	var c client.Credentials
	b, err := os.ReadFile(credentials)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		return err
	}
	s.Key = c.APIKey
	s.Client = client.New(url, s.Key)
	return nil
}

// Running reports whether the program was started and has not been seen to end.
func (s *Server) Running() bool { return s.cmd != nil }

// Ended reports whether the program has ended by itself, and how.
func (s *Server) Ended() (*os.ProcessState, bool) {
	if !s.Running() {
		return nil, false
	}
	select {
	case state := <-s.ended:
		s.cmd = nil
		return state, true
	default:
		return nil, false
	}
}

// PID is the number of the program's process. It must run.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Signal sends the program a signal. It must run.
func (s *Server) Signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// Kill ends the server, if it runs, as a crash does.
func (s *Server) Kill() error {
	return s.end(syscall.SIGKILL, func() error {
		_, err := s.wait()
		return err
	})
}

// Stop ends the server, if it runs, as an operator does; the sandboxes keep running.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM, s.Ends) }

// end sends a signal to a program that may have ended, or never begun, and waits.
func (s *Server) end(sig syscall.Signal, wait func() error) error {
	if !s.Running() {
		return nil
	}
	if err := s.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return wait()
}

// Ends waits until the program has ended as it should.
func (s *Server) Ends() error {
	state, err := s.wait()
	if err == nil && !state.Success() {
		err = fmt.Errorf("the server ended badly: %v", state)
	}
	return err
}

// Dies waits until a failpoint has killed the program.
func (s *Server) Dies() error {
	state, err := s.wait()
	if err != nil {
		return err
	}
	if how, ok := state.Sys().(syscall.WaitStatus); !ok || how.Signal() != syscall.SIGKILL {
		return fmt.Errorf("the server was not killed, but ended: %v", state)
	}
	return nil
}

func (s *Server) wait() (*os.ProcessState, error) {
	select {
	case state := <-s.ended:
		s.cmd = nil
		return state, nil
	case <-time.After(Hangs):
		return nil, fmt.Errorf("the server still runs after %s", Hangs)
	}
}

// ShutDown ends the sandboxes and the server, and reports what is left of them,
// unless the server had ended before. It removes everything.
func (s *Server) ShutDown() error {
	var errs []error
	if state, ok := s.Ended(); ok {
		errs = append(errs, fmt.Errorf("the server had ended by itself: %v", state))
	}
	if s.Running() {
		errs = append(errs, s.terminateAll(), s.Stop(), s.Leftovers(""), s.drafts())
	}
	errs = append(errs, s.Sweep(), s.raceFree(), os.RemoveAll(s.Dir))
	if s.taken != nil {
		errs = append(errs, s.taken.Close())
		s.taken = nil
	}
	return errors.Join(errs...)
}

// raceFree keeps the whole log of a server in which there was a data race, and says where.
func (s *Server) raceFree() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.races {
		return nil
	}
	file, err := os.CreateTemp("", "bothy-race-*.log")
	if err != nil {
		return err
	}
	_, err = file.WriteString(strings.Join(s.log, "\n") + "\n")
	return errors.Join(err, file.Close(), fmt.Errorf("the server has a data race: %s", file.Name()))
}

func (s *Server) terminateAll() error {
	if s.Client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), Hangs)
	defer cancel()
	live, err := s.AllSandboxes(ctx, bothy.LiveStates...)
	errs := []error{err}
	for _, sb := range live {
		errs = append(errs, s.Sandboxes.Terminate(ctx, sb.ID))
	}
	return errors.Join(errs...)
}

// AllSandboxes lists those in some states, or in any.
func (s *Server) AllSandboxes(ctx context.Context, states ...bothy.State) ([]*bothy.Sandbox, error) {
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

// Log returns the lines that the server has logged since it was made, or since
// ForgetLog.
func (s *Server) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// ForgetLog empties the log.
func (s *Server) ForgetLog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = nil
}

// shownLines is how much of a log is shown.
const shownLines = 30

// ShowLog prints the end of the server's log, and keeps all of it in a file if there is more.
func (s *Server) ShowLog(w io.Writer) {
	log := s.Log()
	fmt.Fprintf(w, "the end of the server's log:\n%s\n", strings.Join(log[max(0, len(log)-shownLines):], "\n"))
	if len(log) <= shownLines {
		return
	}
	file, err := os.CreateTemp("", "bothy-server-*.log")
	if err != nil {
		fmt.Fprintln(w, err)
		return
	}
	defer file.Close()
	if _, err = file.WriteString(strings.Join(log, "\n") + "\n"); err == nil {
		fmt.Fprintln(w, "all of it:", file.Name())
	}
}
