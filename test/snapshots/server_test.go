package snapshots

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

// server is a bothy server with a home of its own, that can be killed and
// started again.
type server struct {
	own bool // of one test
	*client.Client
	dir    string // holds everything; home is in it
	home   string
	listen string
	key    string
	// settings is the text of its configuration, or "".
	settings string

	cmd   *exec.Cmd
	ended chan error

	mu  sync.Mutex
	log []string
}

// newServer makes the folder of a server. Everybody may pass through it, because
// the sentries are nobody.
func newServer() (*server, error) {
	dir, err := os.MkdirTemp("/var/tmp", "bothy-snapshots-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	return &server{dir: dir, home: filepath.Join(dir, "home"), listen: "127.0.0.1:0"}, nil
}

// ownServer is a server for one test. Failpoints are armed as in
// failpoint.Env. It makes nothing by itself, so that all there is on the host is
// what the test asked for.
func ownServer(t *testing.T, failpoints string) *server {
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
	s.own = true
	s.restart(t, failpoints)
	return s
}

// restart starts the server again if it runs, or has died.
func (s *server) restart(t *testing.T, failpoints string) {
	t.Helper()
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.start(failpoints); err != nil {
		t.Fatal(err)
	}
}

var readyLine = regexp.MustCompile(`msg=ready url=http://(\S+)`)

// start runs the program until it is ready. After the first time it gets the
// same address and key again.
func (s *server) start(failpoints string) error {
	templates, err := templatesFolder()
	if err != nil {
		return err
	}
	credentials := filepath.Join(s.dir, "credentials.json")
	args := []string{"serve", "--listen", s.listen, "--bootstrap-credentials", credentials}
	if s.settings != "" {
		config := filepath.Join(s.dir, "bothy.yaml")
		if err := os.WriteFile(config, []byte(s.settings), 0o600); err != nil {
			return err
		}
		args = append(args, "--config", config)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "BOTHY_HOME="+s.home, "BOTHY_TEMPLATES="+templates, failpoint.Env+"="+failpoints)
	if s.own {
		cmd.Env = append(cmd.Env, "BOTHY_POOL=off")
	}
	cmd.Dir = "/"
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
	ended, ready := make(chan error, 1), make(chan string, 1)
	s.cmd, s.ended = cmd, ended
	go s.follow(r, ready)
	go func() { ended <- cmd.Wait() }()
	select {
	case s.listen = <-ready:
	case err := <-ended:
		s.cmd = nil
		return fmt.Errorf("the server ended at once: %v", err)
	case <-time.After(hangs):
		return errors.Join(fmt.Errorf("the server was not ready within %s", hangs), s.end(syscall.SIGKILL))
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
	s.Client = client.New("http://"+s.listen, s.key)
	return nil
}

// dies waits until a failpoint has killed the server.
func (s *server) dies(t *testing.T) {
	t.Helper()
	select {
	case <-s.ended:
		s.cmd = nil
	case <-time.After(hangs):
		t.Fatal("the server lives on")
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
		errs = append(errs, s.terminateAll(), s.end(syscall.SIGTERM), s.leftovers(""), s.drafts())
	}
	for _, p := range s.processes("") {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
	for _, parent := range s.cgroups("") {
		_ = removeGroup(parent)
		_ = removeGroup(filepath.Dir(parent))
	}
	parents, _ := filepath.Glob("/sys/fs/cgroup/" + s.cgroupName())
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + s.cgroupName())
	for _, parent := range append(parents, v1...) {
		errs = append(errs, removeGroup(parent))
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

func (s *server) terminateAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	page, err := s.Sandboxes.List(ctx, bothy.SandboxFilter{Limit: 1000})
	errs := []error{err}
	for _, sb := range page.Items {
		if !sb.State.Ended() {
			errs = append(errs, s.Sandboxes.Terminate(ctx, sb.ID))
		}
	}
	return errors.Join(errs...)
}

// leftovers reports what of a sandbox, or of all with "", uses the host:
// processes, cgroups and folders.
func (s *server) leftovers(id string) error {
	var errs []error
	for _, p := range s.processes(id) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
		errs = append(errs, fmt.Errorf("process %d: %q", p, b))
	}
	for _, dir := range s.cgroups(id) {
		errs = append(errs, fmt.Errorf("cgroup %s", dir))
	}
	machines, err := os.ReadDir(filepath.Join(s.home, "machines"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, m := range machines {
		if strings.Contains(m.Name(), id) {
			errs = append(errs, fmt.Errorf("machine folder %s", m.Name()))
		}
	}
	return errors.Join(errs...)
}

// drafts reports folders beside the snapshots that are none.
func (s *server) drafts() error {
	entries, err := os.ReadDir(filepath.Join(s.home, "snapshots"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(s.home, "snapshots", e.Name(), "manifest.json")); err != nil && strings.HasPrefix(e.Name(), "snp") {
			return fmt.Errorf("half a snapshot: %s", e.Name())
		}
		if !strings.HasPrefix(e.Name(), "snp") && s.hasContent(e.Name()) {
			return fmt.Errorf("left beside the snapshots: %s", e.Name())
		}
	}
	return nil
}

func (s *server) hasContent(name string) bool {
	inside, err := os.ReadDir(filepath.Join(s.home, "snapshots", name))
	return err == nil && len(inside) > 0
}

// processes finds those of a sandbox, or of all, by the home and the id in their
// command lines, and by their cgroups.
func (s *server) processes(id string) []int {
	inGroup := map[int]bool{}
	for _, dir := range s.cgroups(id) {
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, f := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(f)
			inGroup[pid] = true
		}
	}
	var found []int
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		b, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if inGroup[pid] || (bytes.Contains(b, []byte(s.home)) && bytes.Contains(b, []byte(id))) {
			found = append(found, pid)
		}
	}
	return found
}

// cgroupName is the name of the parent of this server's cgroups.
func (s *server) cgroupName() string {
	sum := sha256.Sum256([]byte(s.home))
	return "bothy-" + hex.EncodeToString(sum[:4])
}

func (s *server) cgroups(id string) []string {
	groups, _ := filepath.Glob("/sys/fs/cgroup/" + s.cgroupName() + "/*" + id + "*/cgroup.procs")
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + s.cgroupName() + "/*" + id + "*/cgroup.procs")
	groups = append(groups, v1...)
	for i, g := range groups {
		groups[i] = filepath.Dir(g)
	}
	return groups
}

// removeGroup removes a cgroup whose processes are just ending.
func removeGroup(dir string) error {
	deadline := time.Now().Add(hangs)
	for {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			return ignoreGone(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// showLog prints the end of the server's log.
func (s *server) showLog(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(w, "the end of the server's log:\n%s\n", strings.Join(s.log[max(0, len(s.log)-100):], "\n"))
}
