package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/test/testserver"
)

func (b *box) moveTo(host string) *bothy.MovedSandbox {
	b.Helper()
	m, err := b.s.Hosts.MoveSandbox(b.ctx, b.id, bothy.SandboxMove{Host: host})
	if err != nil {
		b.Fatal(err)
	}
	if m.To != host || m.SandboxID != b.id {
		b.Errorf("the result of the move is %+v", m)
	}
	return m
}

// sandboxesOn returns how many sandboxes each host has.
func sandboxesOn(t *testing.T, s *server) map[string]int {
	t.Helper()
	all, err := s.Hosts.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	on := map[string]int{}
	for _, h := range all {
		on[h.Name] = h.Sandboxes
	}
	return on
}

// A sandbox that is moved continues on the other host with its memory, processes, files, snapshots and
// remaining time, and nothing of it remains on the first; so does a paused one, and one that moves back.
func TestASandboxIsMoved(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.boxOn(t, "one", bothy.SandboxCreate{Env: map[string]string{"NAME": "value"}})
	b.sh("", "setsid -f bash -c 'n=0; while :; do n=$((n+1)); echo $n >/tmp/count; sleep 0.05; done' >/dev/null 2>&1 </dev/null; echo content >/workspace/file")
	kept, err := one.Snapshots.CreateSnapshot(t.Context(), b.id, bothy.SnapshotCreate{Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	count := func() int {
		var n int
		eventually(t, "the count can be read", func() bool {
			n, err = strconv.Atoi(b.sh("", "cat /tmp/count"))
			return err == nil
		})
		return n
	}
	before, was := count(), b.get()
	b.sh("", "echo later >/workspace/file")

	b.moveTo("two")
	if on := sandboxesOn(t, one); on["one"] != 0 || on["two"] != 1 {
		t.Errorf("the hosts have %v", on)
	}
	if len(two.Processes(b.id)) == 0 {
		t.Error("the other host has no process of it")
	}
	if n := count(); n < before {
		t.Errorf("its process is at %d after %d", n, before)
	}
	eventually(t, "its process goes on", func() bool { return count() > before })
	is := b.get()
	if is.State != bothy.StateRunning || !is.StartedAt.Equal(*was.StartedAt) || !is.ExpiresAt.Equal(*was.ExpiresAt) {
		t.Errorf("before the move it was %+v, and after it %+v", was, is)
	}
	if got := b.at(two).sh("", "echo $NAME; cat /workspace/file; hostname"); got != "value\nlater\n"+b.sh("", "hostname") {
		t.Errorf("on the other host: %q", got)
	}
	eventually(t, "nothing of it is left on the first host", func() bool { return len(one.Processes(b.id)) == 0 })
	page, err := one.Snapshots.Snapshots(t.Context(), bothy.SnapshotFilter{SandboxID: b.id})
	if err != nil || len(page.Items) != 1 || page.Items[0].ID != kept.ID {
		t.Errorf("its snapshots are %+v, %v", page.Items, err)
	}
	if _, err := one.Snapshots.Rollback(t.Context(), b.id, kept.ID); err != nil {
		t.Fatal(err)
	}
	if got := b.sh("", "cat /workspace/file"); got != "content" {
		t.Errorf("after a rollback it has %q", got)
	}

	b.write("/workspace/file", "paused")
	if _, err := one.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if m := b.moveTo("one"); m.StillMS != 0 {
		t.Errorf("a paused sandbox was frozen for %d ms", m.StillMS)
	}
	if sb := b.get(); sb.State != bothy.StatePaused {
		t.Errorf("it is %s", sb.State)
	}
	// Both hosts still know where it is after they were killed.
	for _, s := range hosts {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := two.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := b.at(two).sh("", "cat /workspace/file"); got != "paused" {
		t.Errorf("it woke with %q", got)
	}
	eventually(t, "its process goes on again", func() bool { n := count(); return count() > n })
	if left := two.Processes(b.id); len(left) > 0 {
		t.Errorf("left on the other host: %v", left)
	}
	var moved []string
	err = two.Events.Events(t.Context(), bothy.EventFilter{SandboxID: b.id}, func(e bothy.Event) error {
		if e.Type == bothy.EventSandboxMoved {
			moved = append(moved, e.Data["from"]+">"+e.Data["to"])
		}
		return nil
	})
	if err != nil || !slices.Equal(moved, []string{"one>two", "two>one"}) {
		t.Errorf("the events have %v, %v", moved, err)
	}

	for what, c := range map[string]struct {
		id, host string
		code     bothy.Code
	}{
		"where it is": {b.id, "one", bothy.CodeConflict}, "no host": {b.id, "three", bothy.CodeNotFound},
		"no sandbox": {"sbx0000000000000000", "two", bothy.CodeSandboxNotFound},
	} {
		if _, err := two.Hosts.MoveSandbox(t.Context(), c.id, bothy.SandboxMove{Host: c.host}); bothy.ErrorCode(err) != c.code {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := one.Hosts.UpdateHost(t.Context(), "two", bothy.HostUpdate{State: bothy.HostCordoned}); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Hosts.MoveSandbox(t.Context(), b.id, bothy.SandboxMove{Host: "two"}); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("to a cordoned host: %v", err)
	}
	if _, err := two.Hosts.MoveSandbox(t.Context(), b.id, bothy.SandboxMove{}); bothy.ErrorCode(err) != bothy.CodeCapacity {
		t.Errorf("with nowhere to go: %v", err)
	}
	b.usable()
}

// A virtual machine can be moved too.
func TestASandboxIsMovedInAVirtualMachine(t *testing.T) {
	t.Parallel()
	needEngine(t, "microvm")
	hosts := newHosts(t, "one", "two")
	b := hosts[0].boxOn(t, "one", bothy.SandboxCreate{Engine: "microvm"})
	b.sh("", "echo content >/workspace/file; setsid -f sh -c 'while :; do echo x >>/tmp/beats; sleep 0.1; done' >/dev/null 2>&1 </dev/null; until [ -s /tmp/beats ]; do sleep 0.02; done")
	for _, to := range []string{"two", "one"} {
		b.moveTo(to)
		if got := b.sh("", "cat /workspace/file"); got != "content" {
			t.Errorf("on %s its file has %q", to, got)
		}
		beats := func() string { return b.sh("", "wc -l </tmp/beats") }
		before := beats()
		eventually(t, "its process goes on", func() bool { return beats() != before })
	}
}

// A drain does not disturb users: commands that run meanwhile, through a third host, the old host and
// the new one, all succeed exactly once.
func TestAHostIsDrainedUnderLoad(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two", "three")
	const n = 10
	boxes := make([]*box, n)
	for i := range boxes {
		boxes[i] = hosts[0].ownBox(t)
	}
	begun, err := hosts[0].Events.LastEvent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hosts[0].Snapshots.Pause(t.Context(), boxes[n-1].id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	// Hosts that asked before have cached where the sandboxes are, and must learn the new place.
	var did [n]atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	for i, b := range boxes[:n-1] {
		through := b.at(hosts[i%3])
		users.Go(func() {
			for ctx.Err() == nil {
				r, err := through.exec(line("", "echo x >>/workspace/lines; wc -l </workspace/lines"))
				if err != nil {
					t.Errorf("a command in sandbox %d: %v", i, err)
					return
				}
				if got := strings.TrimSpace(r.Stdout); got != fmt.Sprint(did[i].Add(1)) {
					t.Errorf("sandbox %d: %s lines after %d commands", i, got, did[i].Load())
					return
				}
			}
		})
	}
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	out, err := hosts[2].cli(t, program, "host", "drain", "one", "--deadline", "4m")
	if err != nil || !strings.Contains(out, "one has no sandboxes any more") {
		t.Errorf("%v: %s", err, out)
	}
	stop()
	users.Wait()
	on := sandboxesOn(t, hosts[1])
	if on["one"] != 0 || on["two"]+on["three"] != n {
		t.Errorf("the hosts have %v", on)
	}
	for i := range did {
		if i < n-1 && did[i].Load() == 0 {
			t.Errorf("no command ran in sandbox %d", i)
		}
	}
	for _, b := range boxes[:n-1] {
		b.usable()
	}
	var still []int
	err = hosts[1].Events.Events(t.Context(), bothy.EventFilter{Since: begun}, func(e bothy.Event) error {
		if ms, err := strconv.Atoi(e.Data["still_ms"]); err == nil && e.Type == bothy.EventSandboxMoved && ms > 0 {
			still = append(still, ms)
		}
		return nil
	})
	if err != nil || len(still) != n-1 {
		t.Errorf("the events have %v, %v", still, err)
	} else {
		slices.Sort(still)
		t.Logf("they were frozen for %v ms", still)
	}
	// It takes no sandboxes until it is uncordoned.
	sb := hosts[0].newBox(t, smallest)
	if on := sandboxesOn(t, hosts[1]); on["one"] != 0 {
		t.Errorf("a drained host took %s: %v", sb.id, on)
	}
	if out, err := hosts[1].cli(t, program, "host", "uncordon", "one"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

var smallest = bothy.SandboxCreate{MemoryMB: 64}

// cli runs the command line against a server.
func (s *server) cli(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(cmd.Environ(), "BOTHY_URL="+s.URL(), "BOTHY_API_KEY="+s.Key)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A sandbox that cannot be moved stays where it is, and the command says why.
func TestADrainThatCannotEnd(t *testing.T) {
	t.Parallel()
	hosts := newShortLeaseHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.ownBox(t)
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.Hosts.UpdateHost(t.Context(), "two", bothy.HostUpdate{State: bothy.HostCordoned}); err != nil {
		t.Fatal(err)
	}
	out, err := two.cli(t, program, "host", "drain", "one", "--deadline", "20s")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(out, "1 sandbox is still on one; one could not be moved yet: sandbox "+b.id) || !strings.Contains(out, "1 sandbox is still on the host one") || !strings.Contains(out, "no other host accepts sandboxes now") {
		t.Errorf("%v: %s", err, out)
	}
	b.usable()
	for _, h := range must(one.Hosts.Hosts(t.Context())) {
		if h.State != bothy.HostCordoned {
			t.Errorf("the host %s is %s", h.Name, h.State)
		}
	}
	// A hook that runs before the server is stopped drains its host until the server is restarted.
	for _, h := range []string{"one", "two"} {
		if _, err := one.Hosts.UpdateHost(t.Context(), h, bothy.HostUpdate{State: bothy.HostUp}); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := one.cli(t, program, "host", "drain", "--self", "--deadline", "4m"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if on := sandboxesOn(t, two); on["one"] != 0 || on["two"] != 1 {
		t.Errorf("the hosts have %v", on)
	}
	if err := one.Stop(); err != nil {
		t.Error(err)
	}
	b.at(two).usable()
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	for _, h := range must(two.Hosts.Hosts(t.Context())) {
		if h.State != bothy.HostUp {
			t.Errorf("the host %s is %s", h.Name, h.State)
		}
	}
	b.usable()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// moveSteps are the steps of a move at which a host may die, by host.
var moveSteps = []struct{ dies, step string }{
	{"one", "move.accepted"}, {"one", "move.stopped"}, {"one", "move.sent"}, {"one", "move.over"},
	{"two", "move.received"}, {"two", "move.awake"}, {"two", "move.taken"},
}

// Either host is killed at each step of a move. Afterwards one host has the sandbox, complete.
func TestHostsAreKilledWhileASandboxMoves(t *testing.T) {
	t.Parallel()
	for _, state := range []bothy.State{bothy.StateRunning, bothy.StatePaused} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			hosts := newHosts(t, "one", "two")
			for _, c := range moveSteps {
				if state == bothy.StatePaused && c.step == "move.awake" {
					continue // it stays paused
				}
				t.Run(c.dies+" at "+c.step, func(t *testing.T) { killWhileItMoves(t, hosts, state, c.dies, c.step) })
			}
		})
	}
}

func killWhileItMoves(t *testing.T, hosts []*server, state bothy.State, who, step string) {
	one, two := hosts[0], hosts[1]
	b := one.ownBox(t)
	b.sh("", "echo content >/workspace/file; setsid -f bash -c 'while :; do echo x >>/tmp/beats; sleep 0.05; done' >/dev/null 2>&1 </dev/null; until [ -s /tmp/beats ]; do sleep 0.02; done")
	if state == bothy.StatePaused {
		if _, err := one.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	dies := map[string]*server{"one": one, "two": two}[who]
	if err := dies.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := dies.Start(step + "=kill"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both hosts are there", func() bool {
		return len(must(one.Hosts.Hosts(t.Context()))) == 2
	})
	_, err := one.Hosts.MoveSandbox(t.Context(), b.id, bothy.SandboxMove{Host: "two"})
	if code := bothy.ErrorCode(err); code == bothy.CodeCapacity || code == bothy.CodeConflict {
		t.Fatalf("it was not moved: %v", err)
	}
	if err := dies.Dies(); err != nil {
		t.Fatalf("the failpoint was not reached: %v; the move ended with %v", err, err)
	}
	if err := dies.Start(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the move: %v", err)
	if state == bothy.StatePaused {
		if sb := b.get(); sb.State != bothy.StatePaused {
			t.Errorf("it is %s", sb.State)
		}
		if _, err := two.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "it can be used", func() bool {
		r, err := b.at(two).exec(line("", "cat /workspace/file"))
		return err == nil && strings.TrimSpace(r.Stdout) == "content"
	})
	beats := func() int { return must(strconv.Atoi(b.sh("", "wc -l </tmp/beats"))) }
	n := beats()
	eventually(t, "its process goes on", func() bool { return beats() > n })
	on := sandboxesOn(t, one)
	if on["one"]+on["two"] != 1 {
		t.Errorf("the hosts have %v", on)
	}
	other := one
	if on["one"] == 1 {
		other = two
	}
	eventually(t, "nothing of it is on the other host", func() bool { return len(other.Processes(b.id)) == 0 })
	// It can still be moved.
	to := "two"
	if on["two"] == 1 {
		to = "one"
	}
	b.moveTo(to)
	b.usable()
	if err := one.Sandboxes.Terminate(t.Context(), b.id); err != nil {
		t.Error(err)
	}
	for _, s := range hosts {
		eventually(t, "nothing of it is left", func() bool { return len(s.Processes(b.id)) == 0 })
	}
}

// ownBox creates a sandbox on the first host.
func (s *server) ownBox(t *testing.T) *box {
	t.Helper()
	return s.boxOn(t, "one", smallest)
}

// boxOn creates a sandbox and moves it to a host unless it is placed there.
func (s *server) boxOn(t *testing.T, name string, req bothy.SandboxCreate) *box {
	t.Helper()
	b := s.newBox(t, req)
	_, err := s.Hosts.MoveSandbox(t.Context(), b.id, bothy.SandboxMove{Host: name})
	if err != nil && bothy.ErrorCode(err) != bothy.CodeConflict { // it is there already
		t.Fatal(err)
	}
	return b
}
