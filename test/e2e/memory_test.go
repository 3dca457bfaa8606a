package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// hog runs a program that allocates more memory than there is.
func (b *box) hog(user, way string) *bothy.ExecResult {
	b.Helper()
	req := b.program(user, "hog.py", way)
	req.TimeoutSeconds = 180
	ended := make(chan struct{})
	var looking sync.WaitGroup
	defer looking.Wait()
	defer close(ended)
	looking.Go(func() {
		select {
		case <-ended:
		case <-time.After(tooLong):
			b.Log(b.describe())
		}
	})
	return b.try(req)
}

// tooLong is the time within which a program that allocates too much memory must have ended.
const tooLong = 90 * time.Second

// describe describes a sandbox that does not behave as expected: what the server did with it, what runs in
// it, and what its agent believes to run.
func (b *box) describe() string {
	var lines []string
	for _, text := range b.s.Log() {
		if strings.Contains(text, b.id) && !strings.Contains(text, "msg=request") {
			lines = append(lines, text)
		}
	}
	lines = append(lines, fmt.Sprintf("%+v", b.get()))
	if r, err := b.exec(line("root", "head -5 /proc/meminfo; for p in /proc/[0-9]*; do cat $p/task/*/stat; grep -E '^(Name|State|Threads|VmRSS)' $p/status; done")); err != nil {
		lines = append(lines, err.Error())
	} else {
		lines = append(lines, r.Stdout, r.Stderr)
	}
	processes, err := b.s.Exec.AllProcesses(b.ctx, b.id)
	if err != nil {
		lines = append(lines, err.Error())
	}
	for _, p := range processes {
		lines = append(lines, fmt.Sprintf("%d %q running=%v unmanaged=%v timed_out=%v oom=%v output=%d", p.PID, p.Command, p.Running, p.Unmanaged, p.TimedOut, p.OOMKilled, p.OutputEnd))
	}
	return strings.Join(lines, "\n")
}

// outOfMemory checks that a command was killed by the memory limit and says so.
func (b *box) outOfMemory(t *testing.T, r *bothy.ExecResult) {
	t.Helper()
	if !r.OOMKilled || r.ExitCode != 137 || !strings.Contains(r.Hint, "256 MB") || !strings.Contains(r.Hint, "memory_mb") {
		t.Errorf("%s\ngot %+v, want it killed at the limit of 256 MB", b.describe(), r)
	}
}

func TestMemoryBombs(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"one", "threads", "shared", "memfd", "many"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			besides(t)
			b := newBox(t, bothy.SandboxCreate{})
			bystander := b.try(bothy.ExecRequest{Command: bothy.Command{Args: []string{"sleep", "1000"}}, Background: true})
			asEachUser(t, func(t *testing.T, user string) {
				b.outOfMemory(t, b.hog(user, way))
				b.usable()
			})
			b.running(bystander.PID)
		})
	}
}

// A child of a command is killed, and the command itself can report it.
func TestMemoryBombInAChild(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	r := b.hog("", "child")
	if !r.OOMKilled || r.ExitCode != 0 || r.Stdout != "child -9\n" || r.Hint == "" {
		t.Errorf("got %+v", r)
	}
	b.usable()
}

// The memory of the sandbox's kernel counts too. Killing a process cannot always free it: the sandbox
// either keeps running, or ends and says why.
func TestMemoryOfTheKernel(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"pipes", "sockets", "/dev/endless"} {
		t.Run(strings.Trim(way, "/"), func(t *testing.T) {
			t.Parallel()
			besides(t)
			b := newBox(t, bothy.SandboxCreate{})
			r, err := b.exec(b.program("root", "hog.py", way))
			if err == nil && r.ExitCode == 0 {
				t.Errorf("it succeeded: %+v", r)
			}
			b.usableOrEnded(bothy.EndOutOfMemory)
		})
	}
}

// usableOrEnded checks that a sandbox is usable some time after an attack, or has ended for this reason.
func (b *box) usableOrEnded(reason bothy.EndReason) {
	b.Helper()
	for deadline := time.Now().Add(hangs); ; time.Sleep(100 * time.Millisecond) {
		r, err := b.exec(line("", "echo alive"))
		if err == nil && r.Stdout == "alive\n" {
			return
		}
		if b.get().State.Ended() {
			b.Logf("the sandbox ended: %+v", b.endedWith(reason))
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("the sandbox neither answers nor ends: %+v, %v", r, err)
		}
	}
}

// Files in memory are limited, and are not charged to a process.
func TestFillingMemoryFileSystems(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{})
	for _, path := range []string{"/dev/shm/fill", "/run/fill"} {
		r := b.hog("root", path)
		if r.OOMKilled || !strings.Contains(r.Stderr, "No space left on device") {
			t.Errorf("filling %s: %+v", path, r)
		}
	}
	b.usable()
	b.sh("root", "rm /dev/shm/fill /run/fill")
}

// Data written to the disk passes through the host's page cache, which the host can reclaim.
func TestWritingFilesUsesNoMemory(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{MemoryMB: 128, DiskMB: 1024})
	r := b.try(line("", "for i in 1 2 3; do dd if=/dev/zero of=/workspace/$i bs=1M count=300 2>/dev/null || exit 1; done; cat /workspace/* | md5sum"))
	if r.ExitCode != 0 || r.OOMKilled {
		t.Errorf("writing 900 MB with 128 MB of memory: %+v", r)
	}
	b.usable()
}

// daemons is a fork bomb whose processes leave their parent's session.
const daemons = `cat >/tmp/daemons <<'END'
while :; do setsid bash /tmp/daemons & sleep 0.1; done
END
bash /tmp/daemons`

func TestForkBombs(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]func(*box) bothy.ExecRequest{
		"shell":       func(*box) bothy.ExecRequest { return line("", "bomb() { bomb | bomb & }; bomb; sleep 1000") },
		"python":      func(b *box) bothy.ExecRequest { return b.program("", "forkbomb.py") },
		"python root": func(b *box) bothy.ExecRequest { return b.program("root", "forkbomb.py") },
		"daemons":     func(*box) bothy.ExecRequest { return line("", daemons) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			besides(t)
			b := newBox(t, bothy.SandboxCreate{})
			req := command(b)
			req.TimeoutSeconds = 5
			r, err := b.exec(req)
			if err == nil && !r.TimedOut && !r.OOMKilled {
				t.Errorf("the fork bomb ended by itself: %+v", r)
			}
			b.usableOrEnded(bothy.EndOutOfMemory)
		})
	}
}

func TestProcessesAreBounded(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{MemoryMB: 512})
	asEachUser(t, func(t *testing.T, user string) {
		limit, err := strconv.Atoi(b.sh(user, "ulimit -u"))
		if err != nil || limit < 100 || limit > bothy.MaxProcesses {
			t.Fatalf("the limit of processes is %d, %v", limit, err)
		}
		r := b.python(user, "manythreads.py", strconv.Itoa(limit))
		n, err := strconv.Atoi(strings.TrimSpace(r.Stdout))
		if err != nil || n < limit/2 || n >= limit {
			t.Errorf("%d threads could be started, of %d: %+v", n, limit, r)
		}
		if r := b.try(line(user, "ulimit -u $(($(ulimit -u) + 1))")); r.ExitCode == 0 {
			t.Error("the limit could be raised")
		}
		b.usable()
	})
}
