package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/template"
)

// firstPort is the first server's port, in a network namespace of its own.
const firstPort = 7700

// Image is the path of the template's image.
func (l *Lab) Image() (string, error) { return l.imageOf(l.Template) }

func (l *Lab) imageOf(name string) (string, error) {
	t, err := template.NewLibrary(l.Templates, template.Options{}).Lookup(name)
	if err != nil {
		return "", err
	}
	return t.RootFS, nil
}

// A Server is a Bothy server that was started for the measurement.
type Server struct {
	bench.Target
	// Key is what its client uses.
	Key string
	PID int
	// Home is the folder of its state.
	Home string

	log  string
	seen int64 // how much of the log has been read
}

// Server starts a server with the given settings, a YAML text that may be empty.
// When the lab closes, its sandboxes end with it.
func (l *Lab) Server(ctx context.Context, settings string, env ...string) (*Server, error) {
	return l.ServerWith(ctx, ServerOptions{Settings: settings, Env: env})
}

// ServerOptions describe a special server.
type ServerOptions struct {
	// Settings are a YAML text, and Env is added to the environment.
	Settings string
	Env      []string
	// Program is another build, if not empty.
	Program string
	// Joins is a host of the cluster to join, if any.
	Joins *Server
}

// ServerWith is Server with options.
func (l *Lab) ServerWith(ctx context.Context, o ServerOptions) (*Server, error) {
	settings, program := o.Settings, o.Program
	if program == "" {
		program = l.Bothy
	}
	name := "server"
	if l.servers > 0 {
		name = fmt.Sprint("server-", l.servers+1)
	}
	listen := fmt.Sprint("127.0.0.1:", firstPort+l.servers)
	l.servers++
	home := filepath.Join(l.Dir, name)
	config, credentials := home+".yaml", home+".json"
	if l.Engine != "" {
		settings += "engine:\n  default: " + l.Engine + "\n"
	}
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	if o.Joins != nil {
		if err := l.join(ctx, program, home, credentials, o.Joins); err != nil {
			return nil, err
		}
	}
	templates := home + "-templates"
	if err := l.linkTemplates(ctx, templates); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "serve", "--config", config, "--bootstrap-credentials", credentials, "--log-format", "json")
	cmd.Env = append(os.Environ(), append(slices.Clone(o.Env),
		"HOME="+l.Dir, "BOTHY_HOME="+home, "BOTHY_TEMPLATES="+templates, "BOTHY_KERNELS="+l.Kernels, "BOTHY_LISTEN="+listen)...)
	if err := l.start(name, cmd); err != nil {
		return nil, err
	}
	s := &Server{Target: bench.Target{Template: l.Template}, PID: cmd.Process.Pid, Home: home, log: l.log(name)}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := await(ctx, "wait for the server", func() error {
		var c client.Credentials
		b, err := os.ReadFile(credentials)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(b, &c); err != nil {
			return err
		}
		s.Client, s.Key = client.New("http://"+listen, c.APIKey), c.APIKey
		return s.Client.Health(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, l.logTail(name))
	}
	l.undo.Add(s.terminateAll)
	return s, nil
}

// linkTemplates gives a server a folder of its own with the lab's templates, as copies where that is on another disk.
func (l *Lab) linkTemplates(ctx context.Context, to string) error {
	names, err := filepath.Glob(filepath.Join(l.Templates, "[^.]*")) // the rest is the state of the server there
	if err == nil {
		err = os.Mkdir(to, 0o755)
	}
	if err != nil || len(names) == 0 {
		return err
	}
	if exec.CommandContext(ctx, "cp", append(slices.Clone(names), "-alt", to)...).Run() == nil {
		return nil
	}
	if out, err := exec.CommandContext(ctx, "cp", append(names, "-a", "--reflink=auto", "-t", to)...).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the templates: %w\n%s", err, out)
	}
	return nil
}

func (s *Server) terminateAll() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f := bothy.SandboxFilter{States: []bothy.State{bothy.StateRunning, bothy.StatePaused}}
	for {
		page, err := s.Client.Sandboxes.List(ctx, f)
		if err != nil || len(page.Items) == 0 {
			return
		}
		for _, sb := range page.Items {
			if err := s.Client.Sandboxes.Terminate(ctx, sb.ID); err != nil {
				return
			}
		}
	}
}

// LogLine is a line of the server's log.
type LogLine struct {
	Msg     string
	Sandbox string
	// MS is a number, or an object of numbers.
	MS json.RawMessage `json:"ms"`
}

// NewLog returns the lines that the server has written since the last call.
func (s *Server) NewLog() ([]LogLine, error) {
	f, err := os.Open(s.log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(s.seen, 0); err != nil {
		return nil, err
	}
	var lines []LogLine
	for r := bufio.NewReader(f); ; {
		text, err := r.ReadString('\n')
		if err != nil {
			return lines, nil // an incomplete line is read next time
		}
		s.seen += int64(len(text))
		var line LogLine
		if json.Unmarshal([]byte(text), &line) == nil {
			lines = append(lines, line)
		}
	}
}

// Group is the cgroup of a sandbox, as a folder with cgroup.procs.
func (s *Server) Group(sandbox string) (string, error) {
	for _, pattern := range []string{"/sys/fs/cgroup/memory/*/" + sandbox, "/sys/fs/cgroup/*/" + sandbox, "/sys/fs/cgroup/*/*/" + sandbox} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0], nil
		}
	}
	return "", errors.New("there is no cgroup of sandbox " + sandbox)
}

// PSSMB is the memory of all processes of a sandbox, where shared memory counts proportionally.
func (s *Server) PSSMB(sandbox string) (float64, error) {
	group, err := s.Group(sandbox)
	if err != nil {
		return 0, err
	}
	b, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, pid := range memories(strings.Fields(string(b))) {
		mb, err := PSSMB(pid)
		if err != nil {
			return 0, err
		}
		sum += mb
	}
	return sum, nil
}

// memories returns one process for each memory: some processes share theirs with others, and
// would be counted twice.
func memories(pids []string) []string {
	var some []string
	for _, pid := range pids {
		if !slices.ContainsFunc(some, func(other string) bool { return sameMemory(pid, other) }) {
			some = append(some, pid)
		}
	}
	return some
}

// kcmpVM makes kcmp(2) compare the memory of two processes.
const kcmpVM = 1

func sameMemory(a, b string) bool {
	p, err := strconv.Atoi(a)
	q, err2 := strconv.Atoi(b)
	if err != nil || err2 != nil {
		return false
	}
	r, _, e := unix.Syscall6(unix.SYS_KCMP, uintptr(p), uintptr(q), kcmpVM, 0, 0, 0)
	return e == 0 && r == 0
}

// PSSMB is the proportional memory of one process.
func PSSMB(pid string) (float64, error) { return memoryOf("/proc/"+pid+"/smaps_rollup", "Pss:") }

func memoryOf(path, name string) (float64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name); ok {
			var kb float64
			_, err := fmt.Sscan(v, &kb)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}
