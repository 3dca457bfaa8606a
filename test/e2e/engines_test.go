package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// emulatedHangs is hangs for one step of an emulated machine. The steps together may take any time,
// depending on the load of the host.
const emulatedHangs = 5 * time.Minute

// kernelsFolder is BOTHY_KERNELS, or a folder that is kept between runs.
func kernelsFolder() (string, error) {
	if dir := os.Getenv("BOTHY_KERNELS"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "bothy-e2e/kernels"), err
}

// life takes a sandbox through its life cycle, the same on every engine.
type life struct {
	*box
	engine string
	// progress is called after each step.
	progress func()
}

// needEngine skips the test if the engine's programs are not installed. The script that runs all tests
// installs them.
func needEngine(t *testing.T, engine string) {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); engine == "microvm" && errors.Is(err, exec.ErrNotFound) {
		t.Skip("QEMU is not installed: bothy doctor --fix")
	}
}

func engineServer(t *testing.T) *server {
	t.Helper()
	kernels, err := kernelsFolder()
	if err != nil {
		t.Fatal(err)
	}
	s := stoppedServer(t)
	s.NoPool, s.Env = true, []string{"BOTHY_KERNELS=" + kernels}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

func begin(t *testing.T, s *server, engine string, req bothy.SandboxCreate) *life {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	stuck := time.AfterFunc(emulatedHangs, func() { cancel(fmt.Errorf("no step finished within %v", emulatedHangs)) })
	t.Cleanup(func() { stuck.Stop() })
	req.Engine, req.Template, req.MemoryMB, req.DiskMB = engine, templateName, 256, 256
	sb, err := s.Sandboxes.Create(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	l := &life{&box{t, s, ctx, sb.ID}, engine, func() { stuck.Reset(emulatedHangs) }}
	l.progress()
	return l
}

func (l *life) of(id string) *life {
	return &life{&box{l.T, l.s, l.ctx, id}, l.engine, l.progress}
}

// run runs a shell command, which must succeed.
func (l *life) run(command string) string {
	l.Helper()
	r, err := l.s.Exec.Exec(l.ctx, l.id, line("", command))
	if err != nil || r.ExitCode != 0 {
		l.Fatalf("%s on %s: %+v, %v, %v", command, l.engine, r, err, context.Cause(l.ctx))
	}
	l.progress()
	return strings.TrimSpace(r.Stdout)
}

// counts starts a process that counts, which shows whether processes continue.
func (l *life) counts() {
	l.Helper()
	_, err := l.s.Exec.Exec(l.ctx, l.id, bothy.ExecRequest{Background: true, Command: bothy.Command{
		Line: `i=0; while sleep 0.1; do i=$((i+1)); echo $i >/tmp/count.new; mv /tmp/count.new /tmp/count; done`,
	}})
	if err != nil {
		l.Fatal(err)
	}
	l.continues()
}

// continues waits until the count has changed, which shows that its process is alive.
func (l *life) continues() {
	l.Helper()
	before := l.run("cat /tmp/count 2>/dev/null || echo none")
	l.run(`until [ -e /tmp/count ] && [ "$(cat /tmp/count)" != ` + before + ` ]; do sleep 0.1; done`)
}

func (l *life) is(content string) {
	l.Helper()
	if got := l.read("/workspace/note"); got != content {
		l.Errorf("on %s the note is %q, want %q", l.engine, got, content)
	}
}

func (l *life) note(content string) {
	l.Helper()
	l.write("/workspace/note", content)
}

func (l *life) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatalf("on %s: %v, %v", l.engine, err, context.Cause(l.ctx))
	}
	l.progress()
}

// A sandbox behaves the same on every engine.
func TestLifeCycleOnEveryEngine(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"gvisor", "microvm"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			needEngine(t, engine)
			s := engineServer(t)
			l := begin(t, s, engine, bothy.SandboxCreate{
				Network: &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"good.example.org"}},
			})
			l.reportsItsEngine()
			l.obeysItsPolicy()
			l.counts()
			l.note("first")
			l.pausesAndResumes()
			l.forksAndRollsBack()
			l.survivesTheServer()
		})
	}
}

func (l *life) reportsItsEngine() {
	l.Helper()
	sb := l.get()
	vm := l.engine == "microvm"
	if sb.Engine != l.engine || vm != slices.Contains([]bothy.Acceleration{bothy.AccelerationKVM, bothy.AccelerationEmulated}, sb.Acceleration) {
		l.Errorf("engine %q, acceleration %q", sb.Engine, sb.Acceleration)
	}
	if got := l.run("uname -r"); got != sb.Kernel {
		l.Errorf("the API reports the kernel %q, and uname %q", sb.Kernel, got)
	}
}

func (l *life) obeysItsPolicy() {
	l.Helper()
	const knock = "! (exec 3<>/dev/tcp/198.51.100.7/%s) 2>/dev/null"
	l.run(strings.Replace(knock, "%s", "1001", 1))
	l.run("! getent hosts bad.example.org")
	for ; !slices.Contains(l.ports(), 1001); time.Sleep(20 * time.Millisecond) {
		if l.ctx.Err() != nil {
			l.Fatalf("the log has %+v", l.decisions())
		}
	}
	sb, err := l.s.Sandboxes.Update(l.ctx, l.id, bothy.SandboxUpdate{Network: &bothy.Network{Mode: bothy.NetworkOff}})
	l.must(err)
	if sb.Network.Mode != bothy.NetworkOff {
		l.Errorf("the network is %+v", sb.Network)
	}
	l.run(strings.Replace(knock, "%s", "1002", 1))
	l.run("! getent hosts good.example.org")
}

func (l *life) pausesAndResumes() {
	l.Helper()
	const boot = "cat /proc/sys/kernel/random/boot_id"
	before := l.run(boot)
	_, err := l.s.Snapshots.Pause(l.ctx, l.id, bothy.PauseOptions{})
	l.must(err)
	if sb := l.get(); sb.State != bothy.StatePaused {
		l.Fatalf("it is %s", sb.State)
	}
	sb, err := l.s.Snapshots.Resume(l.ctx, l.id, bothy.ResumeOptions{})
	l.must(err)
	if sb.Resumed == nil || sb.Resumed.Kind != bothy.SnapshotMemory {
		l.Errorf("on %s it was resumed as %+v", l.engine, sb.Resumed)
	}
	if after := l.run(boot); after != before {
		l.Errorf("on %s the boot id was %s, and is %s", l.engine, before, after)
	}
	l.is("first")
	l.continues()
}

// identity prints values that must differ between any two sandboxes.
const identity = "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | base64; echo $BOTHY_COMMAND_ID"

func (l *life) forksAndRollsBack() {
	l.Helper()
	then, err := l.s.Snapshots.CreateSnapshot(l.ctx, l.id, bothy.SnapshotCreate{Name: "then"})
	l.must(err)
	l.continues()
	l.note("second")
	copies, err := l.s.Snapshots.Fork(l.ctx, l.id, bothy.ForkRequest{Count: 2})
	l.must(err)
	seen := []string{l.run(identity)}
	for _, sb := range copies {
		c := l.of(sb.ID)
		c.is("second")
		c.continues()
		c.note("of the copy")
		seen = append(seen, c.run(identity))
		l.must(l.s.Sandboxes.Terminate(l.ctx, sb.ID))
	}
	for i, a := range seen {
		for _, b := range seen[i+1:] {
			for n, word := range strings.Fields(a) {
				if word == strings.Fields(b)[n] {
					l.Errorf("on %s two copies share %q", l.engine, word)
				}
			}
		}
	}
	l.is("second")
	_, err = l.s.Snapshots.Rollback(l.ctx, l.id, then.ID)
	l.must(err)
	l.is("first")
	l.continues()
}

func (l *life) survivesTheServer() {
	l.Helper()
	l.must(l.s.Kill())
	l.must(l.s.Start())
	if sb := l.get(); sb.State != bothy.StateRunning {
		l.Fatalf("after the server was killed it is %s: %+v", sb.State, sb.Ended)
	}
	l.is("first")
	l.continues()
	l.must(l.s.Sandboxes.Terminate(l.ctx, l.id))
}

// A snapshot's files can be restored on another engine, with added files, changed owners and deletions,
// but without processes.
func TestFilesMoveBetweenEngines(t *testing.T) {
	t.Parallel()
	needEngine(t, "microvm")
	s := engineServer(t)
	l := begin(t, s, "gvisor", bothy.SandboxCreate{})
	l.run("sudo mkdir /opt/mine && sudo chown user /opt/mine && echo kept >/opt/mine/note && ln -s note /opt/mine/link && sudo rm /etc/issue")
	for _, engine := range []string{"microvm", "gvisor"} {
		snapshot, err := s.Snapshots.CreateSnapshot(l.ctx, l.id, bothy.SnapshotCreate{Name: "to move"})
		l.must(err)
		sb, err := s.Sandboxes.Create(l.ctx, bothy.SandboxCreate{SnapshotID: snapshot.ID, Engine: engine})
		l.must(err)
		if sb.Engine != engine || sb.Resumed == nil || sb.Resumed.Kind != bothy.SnapshotFiles || !strings.Contains(sb.Resumed.Detail, l.engine) {
			t.Errorf("on %s: %s, %+v", engine, sb.Engine, sb.Resumed)
		}
		l = &life{&box{t, s, l.ctx, sb.ID}, engine, l.progress}
		if got := l.run("cat /opt/mine/link; stat -c %U /opt/mine; ls /etc/issue 2>/dev/null || echo gone"); got != "kept\nuser\ngone" {
			t.Errorf("on %s the files are %q", engine, got)
		}
	}
}

// Requests for an engine that this host lacks are refused.
func TestUnavailableEngines(t *testing.T) {
	t.Parallel()
	s := stoppedServer(t)
	s.NoPool, s.Env = true, []string{"PATH=/nonexistent"}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	_, err := s.create(t.Context(), bothy.SandboxCreate{Engine: "microvm"})
	if e := bothy.AsError(err); e == nil || e.Code != bothy.CodeEngineMissing || !strings.Contains(e.Hint, "doctor --fix") {
		t.Errorf("without QEMU: %v", err)
	}
	_, err = s.create(t.Context(), bothy.SandboxCreate{Engine: "auto", RequireAcceleration: true})
	if got := bothy.ErrorCode(err); got != bothy.CodeNoAcceleration {
		t.Errorf("without QEMU: %v", err)
	}
	_, err = s.create(t.Context(), bothy.SandboxCreate{Engine: "gvisor", RequireAcceleration: true})
	if got := bothy.ErrorCode(err); got != bothy.CodeInvalid {
		t.Errorf("gvisor with an acceleration: %v", err)
	}
	b := s.newBox(t, bothy.SandboxCreate{Engine: "auto"})
	if sb := b.get(); sb.Engine != "gvisor" {
		t.Errorf("auto chose %s", sb.Engine)
	}
	b.usable()
}
