package snapshots

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// box is a sandbox of a test.
type box struct {
	*testing.T
	s  *server
	id string
}

// newBox creates a small sandbox, which is terminated when the test ends.
func (s *server) newBox(t *testing.T, req bothy.SandboxCreate) *box {
	t.Helper()
	ctx, cancel := within(t)
	defer cancel()
	if req.Template == "" && req.SnapshotID == "" {
		req.Template = bare
	}
	if req.SnapshotID == "" {
		req.DiskMB = 256
		if req.MemoryMB == 0 {
			req.MemoryMB = 256
		}
	}
	sb, err := s.Sandboxes.Create(ctx, req)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return s.box(t, sb.ID)
}

// box returns an existing sandbox.
func (s *server) box(t *testing.T, id string) *box {
	t.Cleanup(func() {
		if !s.Running() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		defer cancel()
		if err := s.Sandboxes.Terminate(ctx, id); err != nil {
			t.Error(err)
		}
	})
	return &box{t, s, id}
}

// within returns the context of a call that must not hang.
func within(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), hangs)
}

// sh runs a shell command, which must succeed, and returns its output.
func (b *box) sh(line string) string {
	b.Helper()
	out, err := b.try(line)
	if err != nil {
		b.Fatalf("%s: %v", line, err)
	}
	return out
}

func (b *box) try(line string) (string, error) {
	ctx, cancel := within(b.T)
	defer cancel()
	r, err := b.s.Exec.Exec(ctx, b.id, bothy.ExecRequest{Command: bothy.Command{Line: line}})
	if err != nil {
		return "", err
	}
	if r.ExitCode != 0 {
		return "", fmt.Errorf("exit code %d: %s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout), nil
}

// spawn starts a command in the background and returns its pid.
func (b *box) spawn(line string) int {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	r, err := b.s.Exec.Exec(ctx, b.id, bothy.ExecRequest{Command: bothy.Command{Line: line}, Background: true})
	if err != nil {
		b.Fatalf("%s: %v", line, err)
	}
	return r.PID
}

func (b *box) get() *bothy.Sandbox {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	sb, err := b.s.Sandboxes.Get(ctx, b.id)
	if err != nil {
		b.Fatal(err)
	}
	return sb
}

func (b *box) is(want bothy.State) {
	b.Helper()
	if sb := b.get(); sb.State != want {
		b.Fatalf("the sandbox is %s, want %s (%+v)", sb.State, want, sb.Ended)
	}
}

func (b *box) becomes(want bothy.State) {
	b.Helper()
	eventually(b.T, "be "+string(want), func() bool { return b.get().State == want })
}

func (b *box) pause() *bothy.Snapshot {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	n, err := b.s.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{})
	if err != nil {
		b.Fatalf("pause: %v", err)
	}
	return n
}

// resume resumes the sandbox by its own id or a snapshot's.
func (b *box) resume(id string) *bothy.Sandbox {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	sb, err := b.s.Snapshots.Resume(ctx, id, bothy.ResumeOptions{})
	if err != nil {
		b.Fatalf("resume: %v", err)
	}
	return sb
}

func (b *box) snapshot(name string) *bothy.Snapshot {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	n, err := b.s.Snapshots.CreateSnapshot(ctx, b.id, bothy.SnapshotCreate{Name: name})
	if err != nil {
		b.Fatalf("snapshot: %v", err)
	}
	return n
}

// refused checks the code of an error.
func refused(t *testing.T, what string, err error, want bothy.Code) {
	t.Helper()
	if got := bothy.ErrorCode(err); got != want {
		t.Errorf("%s: code %q, want %q (%v)", what, got, want, err)
	}
}

// eventually waits for something that must happen.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(hangs)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("it did not %s within %s", what, hangs)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// counterCode counts in memory, with an open file and a socket, through which it reports its state. None
// of this could be restored from files.
const counterCode = `
import os, socket, threading, time, uuid
n = 0
log = open("/tmp/counter.log", "w")
os.unlink("/tmp/counter.log")
door = socket.socket(socket.AF_UNIX)
door.bind("/tmp/counter.sock")
door.listen()
def count():
    global n
    while True:
        n += 1
        log.write(f"{n}\n")
        log.flush()
        time.sleep(float(os.environ.get("TICK", "0.01")))
threading.Thread(target=count, daemon=True).start()
while True:
    c, _ = door.accept()
    c.sendall(f"{os.getpid()} {n} {log.tell() > 0} {os.environ.get('SEED')} {uuid.uuid4()}".encode())
    c.close()
`

// count is the report of a counter: its process, its count, whether its file is still open, its
// environment, and a new random number.
type count struct {
	pid, n int
	file   bool
	seed   string
	drawn  string
}

const ask = `python3 -c '
import socket
s = socket.socket(socket.AF_UNIX)
s.connect("/tmp/counter.sock")
print(s.makefile().read())'`

func (b *box) startCounter() {
	b.Helper()
	b.writeCounter()
	b.spawn("SEED=tree exec python3 /tmp/counter.py")
	b.counts()
}

func (b *box) writeCounter() {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	if _, err := b.s.Files.Write(ctx, b.id, "/tmp/counter.py", strings.NewReader(counterCode), bothy.WriteOptions{}); err != nil {
		b.Fatal(err)
	}
}

// startQuietCounter starts a counter that belongs to no command and uses hardly any processor time.
func (b *box) startQuietCounter() {
	b.Helper()
	b.writeCounter()
	b.sh("SEED=tree TICK=0.3 setsid python3 /tmp/counter.py </dev/null >/dev/null 2>&1 &")
	b.counts()
}

func (b *box) counts() {
	b.Helper()
	eventually(b.T, "count", func() bool {
		out, err := b.try(ask)
		return err == nil && b.parse(out).n > 0
	})
}

func (b *box) counter() count {
	b.Helper()
	return b.parse(b.sh(ask))
}

func (b *box) parse(out string) count {
	b.Helper()
	f := strings.Fields(out)
	if len(f) != 5 {
		b.Fatalf("the counter reports %q", out)
	}
	pid, _ := strconv.Atoi(f[0])
	n, _ := strconv.Atoi(f[1])
	return count{pid, n, f[2] == "True", f[3], f[4]}
}

// continued checks that it is the same counter, continuing from where it was. The upper bound detects one
// that kept running while its sandbox was paused.
func (b *box) continued(before count) {
	b.Helper()
	now := b.counter()
	if now.pid != before.pid || now.n < before.n || !now.file || now.seed != before.seed {
		b.Fatalf("the counter was %+v and is %+v", before, now)
	}
	eventually(b.T, "count on", func() bool { return b.counter().n > now.n })
}
