package snapshots

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

func TestPausedSandboxContinuesWhereItWas(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{Env: map[string]string{"COLOUR": "heather"}})
	b.startCounter()
	b.spawn("cd /tmp && exec python3 -m http.server 8000")
	eventually(t, "serve", func() bool { _, err := b.fetch(8000, "/counter.py"); return err == nil })
	ticks := b.spawn(`i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.05; done`)
	eventually(t, "tick", func() bool { return b.output(ticks) > 0 })
	shell := b.terminal()
	shell.say("cd /var/tmp; glen=affric; touch /tmp/said")
	eventually(t, "hear", func() bool { _, err := b.try("test -e /tmp/said"); return err == nil })
	shellEnv := b.sh("readlink /proc/" + shell.pid() + "/cwd")
	before, printed := b.counter(), b.output(ticks)

	n := b.pause()
	if n.Kind != bothy.SnapshotMemory || n.SizeBytes == 0 {
		t.Errorf("snapshot %+v", n)
	}
	b.is(bothy.StatePaused)
	if sb := b.resume(b.id); sb.ID != b.id || sb.State != bothy.StateRunning || sb.Resumed == nil || sb.Resumed.Kind != bothy.SnapshotMemory {
		t.Fatalf("resumed %+v", sb)
	}

	b.continued(before)
	if page, err := b.fetch(8000, "/counter.py"); err != nil || page != counterCode {
		t.Errorf("the server in the sandbox answers %q, %v", page, err)
	}
	if got := b.sh("echo $COLOUR"); got != "heather" {
		t.Errorf("COLOUR=%q", got)
	}
	eventually(t, "print on", func() bool { return b.output(ticks) > printed })
	if first := b.outputText(ticks); !strings.HasPrefix(first, "tick 1\ntick 2\n") {
		t.Errorf("the output from before the pause is missing: %.40q", first)
	}
	if got := b.sh("readlink /proc/" + shell.pid() + "/cwd"); shellEnv != "/var/tmp" || got != shellEnv {
		t.Errorf("the shell of the terminal was in %s and is in %s", shellEnv, got)
	}
}

// TestCodeContextKeepsItsVariables runs with a Jupyter kernel and with plain Python.
func TestCodeContextKeepsItsVariables(t *testing.T) {
	for _, template := range []string{bare, "python-3.12"} {
		t.Run(template, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := within(t)
			defer cancel()
			if _, err := shared.Templates.Template(ctx, template); template != bare && bothy.ErrorCode(err) == bothy.CodeTemplateNotFound {
				t.Skip("the template is missing; make test builds it")
			}
			b := shared.newBox(t, bothy.SandboxCreate{Template: template, MemoryMB: 512})
			b.run("import threading\nkept = {'loch': 'lomond'}\nlock = threading.Lock()\nlock.acquire()", "")
			b.pause()
			b.resume(b.id)
			b.run("print(kept['loch'], lock.locked())", "lomond True\n")
		})
	}
}

func (b *box) run(code, want string) {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	r, err := b.s.Code.RunCode(ctx, b.id, bothy.CodeRequest{Code: code})
	if err != nil || r.Error != nil || r.Stdout != want {
		b.Fatalf("%s: %+v, %v", code, r, err)
	}
}

func TestPausedSandboxCostsNothing(t *testing.T) {
	t.Parallel()
	// Machines of the pool have other names than their sandboxes.
	s := ownServer(t)
	s.Settings = "pool: {templates: [], ready_max: 0, spares: 0, golden_max: 0}\n"
	s.restart(t)
	b := s.newBox(t, bothy.SandboxCreate{})
	if b.s.Leftovers(b.id) == nil {
		t.Fatal("the test does not see a running sandbox on the host")
	}
	b.pause()
	if err := b.s.Leftovers(b.id); err != nil {
		t.Errorf("left of a paused sandbox:\n%v", err)
	}
	_, err := b.try("true")
	refused(t, "use while paused", err, bothy.CodeSandboxPaused)
	b.resume(b.id)
	b.sh("true")
}

func TestResumeFromElsewhereAndAfterARestart(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	one, two := s.newBox(t, bothy.SandboxCreate{}), s.newBox(t, bothy.SandboxCreate{})
	one.startCounter()
	two.startCounter()
	first, second := one.counter(), two.counter()
	one.pause()
	n := two.pause()
	s.restart(t)
	// Another client, which knows only the ids.
	s.Client = client.New(s.URL(), s.Key)
	one.is(bothy.StatePaused)
	one.resume(one.id)
	two.resume(n.ID)
	one.continued(first)
	two.continued(second)
}

func TestFilesOnlyPause(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	b.sh("echo kept >/workspace/a; sudo rm /etc/hostname; mkdir -p /workspace/d; ln -s ../a /workspace/d/link; chmod 640 /workspace/a")
	ctx, cancel := within(t)
	defer cancel()
	n, err := b.s.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{FilesOnly: true})
	if err != nil || n.Kind != bothy.SnapshotFiles {
		t.Fatalf("%+v, %v", n, err)
	}
	sb := b.resume(b.id)
	b.filesOnly(sb)
	if got := b.sh("cat /workspace/d/link; stat -c %a:%U /workspace/a"); got != "kept\n640:user" {
		t.Errorf("the files are %q", got)
	}
}

// filesOnly checks that the files were restored without processes, and that the answer says so.
func (b *box) filesOnly(sb *bothy.Sandbox) {
	b.Helper()
	if sb.Resumed == nil || sb.Resumed.Kind != bothy.SnapshotFiles || sb.Resumed.Detail == "" {
		b.Errorf("resumed: %+v", sb.Resumed)
	}
	if _, err := b.try(ask); err == nil {
		b.Error("the counter is still running")
	}
	if got := b.sh("test -e /tmp/counter.py && echo there"); got != "there" {
		b.Errorf("the file is missing: %q", got)
	}
}

func TestAnotherEngineBuildRestoresFilesOnly(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	n := b.pause()
	path := filepath.Join(b.s.Home, "snapshots", n.ID, "manifest.json")
	var m map[string]any
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	m["engine_build"] = "of yesteryear"
	text, _ = json.Marshal(m)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	sb := b.resume(b.id)
	b.filesOnly(sb)
	if !strings.Contains(sb.Resumed.Detail, "of yesteryear") {
		t.Errorf("detail %q", sb.Resumed.Detail)
	}
}

func TestDamagedSnapshotIsNotResumed(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	before := b.counter()
	n := b.pause()
	images, _ := filepath.Glob(filepath.Join(b.s.Home, "snapshots", n.ID, "memory", "*.img"))
	if len(images) == 0 {
		t.Fatal("the snapshot has no images")
	}
	for _, image := range images {
		flipByte(t, image)
		ctx, cancel := within(t)
		_, err := b.s.Snapshots.Resume(ctx, b.id, bothy.ResumeOptions{})
		cancel()
		refused(t, filepath.Base(image), err, bothy.CodeSnapshotDamaged)
		b.is(bothy.StatePaused)
		if err := b.s.Leftovers(b.id); err != nil {
			t.Errorf("%s: left: %v", filepath.Base(image), err)
		}
		flipByte(t, image)
	}
	b.resume(b.id)
	b.continued(before)
}

func flipByte(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b, at := make([]byte, 1), info.Size()/2
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatalf("%s of %d bytes: %v", path, info.Size(), err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// fetch requests a page of a server in the sandbox through a tunnel.
func (b *box) fetch(port uint16, path string) (string, error) {
	ctx, cancel := within(b.T)
	defer cancel()
	h := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return b.s.Ports.DialPort(ctx, b.id, port) }}}
	res, err := h.Get("http://sandbox" + path)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	return string(page), err
}

// output returns the length of a background command's output.
func (b *box) output(pid int) int64 {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	list, err := b.s.Exec.Processes(ctx, b.id)
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range list {
		if p.PID == pid && p.Running {
			return p.OutputEnd
		}
	}
	b.Fatalf("process %d is not among %+v", pid, list)
	return 0
}

// outputText returns the beginning of a background command's output.
func (b *box) outputText(pid int) string {
	ctx, cancel := within(b.T)
	defer cancel()
	var text strings.Builder
	_ = b.s.Exec.Output(ctx, b.id, pid, 0, func(e bothy.ExecEvent) error {
		if text.WriteString(e.Data); text.Len() > 20 {
			return io.EOF
		}
		return nil
	})
	return text.String()
}

// clocks returns the monotonic time inside, and by how much the time since boot is ahead of it: the
// least of many looks, since time passes between the two.
func (b *box) clocks() (monotonic, ahead time.Duration) {
	b.Helper()
	out := b.sh(`python3 -c '
from time import *
print(monotonic_ns(), min(-monotonic_ns() + clock_gettime_ns(CLOCK_BOOTTIME) for _ in range(1000)))'`)
	if _, err := fmt.Sscanf(out, "%d %d", &monotonic, &ahead); err != nil {
		b.Fatalf("%q: %v", out, err)
	}
	return monotonic, ahead
}

// sleeper sleeps until it gets a signal, and prints how long that was, in ns: by what is left of its sleep, by what is
// left of a timer, and by the monotonic clock, which was read before and after.
const sleeper = `
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
span = lambda *n: (ctypes.c_long * len(n))(*n)
signal.signal(signal.SIGUSR1, lambda *_: None)
start = time.monotonic_ns()
timer = libc.timerfd_create(time.CLOCK_REALTIME, 0)
libc.timerfd_settime(timer, 0, span(0, 0, 1000, 0), None)
print(os.getpid(), flush=True)
left, of_timer = span(0, 0), span(0, 0, 0, 0)
libc.nanosleep(span(1000, 0), left)
libc.timerfd_gettime(timer, of_timer)
slept = lambda s, ns: (1000 - s) * 10**9 - ns
print(slept(*left), slept(*of_timer[2:]), time.monotonic_ns() - start)
`

// What sleeps for a time, or set a timer for one, has after a pause what it had left, and the pause is no part of how
// long a command ran. This holds for C libraries and timeout(1), which count on the time of day.
func TestTimersAndDurationsLeaveOutAPause(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	before, _ := b.clocks()
	command := b.spawn("python3 -c '" + sleeper + "' | tee /tmp/slept")
	b.sh("until grep -q . /tmp/slept; do sleep 0.02; done")
	b.pause()
	b.resume(b.id)
	out := b.sh("set -- $(cat /tmp/slept); while kill -USR1 $1 2>/dev/null; do sleep 0.02; done; until [ $(wc -l </tmp/slept) = 2 ]; do sleep 0.02; done; tail -1 /tmp/slept")
	var slept, ofTimer, monotonic int64
	if _, err := fmt.Sscan(out, &slept, &ofTimer, &monotonic); err != nil || slept > monotonic || ofTimer > monotonic {
		t.Errorf("slept, by the timer, by the monotonic clock: %s, %v", out, err)
	}
	ctx, cancel := within(t)
	defer cancel()
	ran := time.Duration(-1)
	err := b.s.Exec.Output(ctx, b.id, command, 0, func(e bothy.ExecEvent) error {
		if e.IsFinal {
			ran = time.Duration(e.DurationMS) * time.Millisecond
		}
		return nil
	})
	if after, _ := b.clocks(); err != nil || ran < 0 || ran > after-before {
		t.Errorf("the command ran for %s, and the monotonic clock for %s, %v", ran, after-before, err)
	}
}

// Monotonic time, and so every timer, stops during a pause. The time since boot goes on.
func TestAPauseDoesNotCount(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	monotonic, ahead := b.clocks()
	b.pause()
	paused := time.Now()
	b.is(bothy.StatePaused)
	took := time.Since(paused)
	b.resume(b.id)
	copied := b.fork(1)[0]
	for _, c := range []*box{b, copied} {
		if m, a := c.clocks(); m <= monotonic || a-ahead < took {
			t.Errorf("paused for more than %s, the monotonic time went from %s to %s, and the time since boot from %s to %s ahead of it", took, monotonic, m, ahead, a)
		}
	}
}
