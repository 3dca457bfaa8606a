package e2e

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// box is a sandbox of a test.
type box struct {
	*testing.T
	s   *server
	ctx context.Context
	id  string
}

// newBox creates a sandbox on the shared server, which is terminated when the test ends. Sizes that the
// request does not set are small.
func newBox(t *testing.T, req bothy.SandboxCreate) *box {
	t.Helper()
	return shared.newBox(t, req)
}

func (s *server) newBox(t *testing.T, req bothy.SandboxCreate) *box {
	t.Helper()
	sb, err := s.create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		defer cancel()
		if err := s.Sandboxes.Terminate(ctx, sb.ID); err != nil {
			t.Error(err)
		}
	})
	return &box{t, s, t.Context(), sb.ID}
}

func (s *server) create(ctx context.Context, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	if req.Template == "" {
		req.Template = cmp.Or(s.template, templateName)
	}
	if req.MemoryMB == 0 {
		req.MemoryMB = 256
	}
	if req.DiskMB == 0 {
		req.DiskMB = 256
	}
	return s.Sandboxes.Create(ctx, req)
}

// exec runs a command that must not hang, and returns its result or error.
func (b *box) exec(req bothy.ExecRequest) (*bothy.ExecResult, error) {
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	return b.s.Exec.Exec(ctx, b.id, req)
}

func line(user, command string) bothy.ExecRequest {
	return bothy.ExecRequest{Command: bothy.Command{Line: command}, User: user}
}

// sh runs a shell command as a user, which must succeed, and returns its standard output.
func (b *box) sh(user, command string) string {
	b.Helper()
	r := b.try(line(user, command))
	if r.ExitCode != 0 {
		b.Fatalf("%s: exit code %d\n%s%s%s", command, r.ExitCode, r.Stdout, r.Stderr, r.Hint)
	}
	return strings.TrimSpace(r.Stdout)
}

// try runs a command that may fail.
func (b *box) try(req bothy.ExecRequest) *bothy.ExecResult {
	b.Helper()
	r, err := b.exec(req)
	if err != nil {
		b.Fatalf("%v: %v", req.Command.Argv(), err)
	}
	return r
}

func (b *box) get() *bothy.Sandbox {
	b.Helper()
	sb, err := b.s.Sandboxes.Get(b.ctx, b.id)
	if err != nil {
		b.Fatal(err)
	}
	return sb
}

// usable checks that the sandbox still runs commands and stores files.
func (b *box) usable() {
	b.Helper()
	if got := b.sh("", "echo alive >/workspace/alive && cat /workspace/alive && rm /workspace/alive"); got != "alive" {
		b.Fatalf("the sandbox answers %q", got)
	}
}

// endedWith waits until the sandbox has ended and checks the reason.
func (b *box) endedWith(want bothy.EndReason) *bothy.Ended {
	b.Helper()
	sb := b.awaitEnd()
	if sb.Ended == nil || sb.Ended.Reason != want || sb.Ended.Detail == "" {
		b.Fatalf("the sandbox is %s with %+v, want it ended because of %s", sb.State, sb.Ended, want)
	}
	return sb.Ended
}

func (b *box) awaitEnd() *bothy.Sandbox {
	b.Helper()
	for deadline := time.Now().Add(hangs); ; time.Sleep(50 * time.Millisecond) {
		if sb := b.get(); sb.State.Ended() || time.Now().After(deadline) {
			return sb
		}
	}
}

//go:embed testdata/*.py
var programs embed.FS

// python runs one of the programs under testdata.
func (b *box) python(user, name string, args ...string) *bothy.ExecResult {
	b.Helper()
	return b.try(b.program(user, name, args...))
}

// program uploads one of the programs under testdata and returns how to run it.
func (b *box) program(user, name string, args ...string) bothy.ExecRequest {
	b.Helper()
	for _, file := range []string{"attack.py", "reach.py", name} {
		source, err := programs.ReadFile("testdata/" + file)
		if err != nil {
			b.Fatal(err)
		}
		b.write(path.Join("/opt/attack", file), string(source))
	}
	return bothy.ExecRequest{
		Command: bothy.Command{Args: append([]string{"python3", "/opt/attack/" + name}, args...)}, User: user,
	}
}

func (b *box) write(path, content string) {
	b.Helper()
	if _, err := b.s.Files.Write(b.ctx, b.id, path, strings.NewReader(content), bothy.WriteOptions{User: "root"}); err != nil {
		b.Fatalf("write %s: %v", path, err)
	}
}

// outcomes has the result of each attempt of an attack: "done" if it succeeded, and otherwise the name of
// the error.
type outcomes map[string]string

// attack runs a program that prints outcomes.
func (b *box) attack(user, name string, args ...string) outcomes {
	b.Helper()
	r := b.python(user, name, args...)
	var o outcomes
	if err := json.Unmarshal([]byte(r.Stdout), &o); err != nil || r.ExitCode != 0 || len(o) == 0 {
		b.Fatalf("%s did not finish: exit code %d, %v\n%s%s%s", name, r.ExitCode, err, r.Stdout, r.Stderr, r.Hint)
	}
	return o
}

// refused checks that no attempt succeeded or hung, except those named, which must have been made.
func (o outcomes) refused(t *testing.T, but ...string) {
	t.Helper()
	for _, name := range but {
		if _, tried := o[name]; !tried {
			t.Errorf("%q was not tried", name)
		}
	}
	for name, outcome := range o {
		if !slices.Contains(but, name) && (outcome == "done" || outcome == "no answer") {
			t.Errorf("%s: %s", name, outcome)
		}
	}
}

// asEachUser runs a test as the sandbox's user and as its root.
func asEachUser(t *testing.T, f func(t *testing.T, user string)) {
	t.Helper()
	for _, user := range []string{"user", "root"} {
		t.Run(user, func(t *testing.T) { f(t, user) })
	}
}

// neighbour is an innocent sandbox that all tests share.
var neighbour = sync.OnceValues(func() (string, error) {
	sb, err := shared.create(context.Background(), bothy.SandboxCreate{Name: "neighbour"})
	if err != nil {
		return "", err
	}
	return sb.ID, nil
})

// besides checks until the test ends that the neighbour, the server and the host keep answering.
func besides(t *testing.T) {
	t.Helper()
	id, err := neighbour()
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	asked := 0
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(250 * time.Millisecond); ; asked++ {
			answers(t, id)
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		t.Logf("the neighbour was checked %d times", asked)
	})
}

// patience is how long a neighbour may take to answer. Half a dozen attacks may share two processors.
const patience = time.Minute

func answers(t *testing.T, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := shared.Exec.Exec(ctx, id, bothy.ExecRequest{Command: bothy.Command{Args: []string{"echo", "here"}}})
	if err != nil || r.Stdout != "here\n" {
		t.Errorf("the neighbour answers %+v, %v", r, err)
	}
	if err := shared.Health(ctx); err != nil {
		t.Errorf("the server's health: %v", err)
	}
	if err := exec.CommandContext(ctx, "true").Run(); err != nil {
		t.Errorf("the host cannot run a program: %v", err)
	}
}

// running checks that a background process is still running.
func (b *box) running(pid int) {
	b.Helper()
	all, err := b.s.Exec.Processes(b.ctx, b.id)
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range all {
		if p.PID == pid && p.Running {
			return
		}
	}
	b.Errorf("process %d is not running: %+v", pid, all)
}
