package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/test/testserver"
)

// seed makes the load and the times of the crashes as repeatable as possible. BOTHY_E2E_SEED sets another
// seed.
func seed(t *testing.T) uint64 {
	n, err := strconv.ParseUint(os.Getenv("BOTHY_E2E_SEED"), 10, 64)
	if err != nil {
		n = 1
	}
	t.Logf("BOTHY_E2E_SEED=%d", n)
	return n
}

// survivor is a sandbox that must survive every crash, with a file and a process that counts.
type survivor struct {
	*box
	pid   int
	ticks int
}

func (s *server) newSurvivor(t *testing.T) *survivor {
	t.Helper()
	sb, err := s.create(t.Context(), bothy.SandboxCreate{TimeoutSeconds: ptr(0), MemoryMB: 128})
	if err != nil {
		t.Fatal(err)
	}
	k := &survivor{box: &box{t, s, t.Context(), sb.ID}}
	k.write("/workspace/kept", sb.ID)
	r := k.try(bothy.ExecRequest{
		Command:    bothy.Command{Line: "for ((n = 1; ; n++)); do echo $n >/tmp/next; mv /tmp/next /workspace/ticks; sleep 0.05; done"},
		Background: true,
	})
	k.pid = r.PID
	k.sh("", "until [ -s /workspace/ticks ]; do sleep 0.05; done")
	return k
}

// check checks that the sandbox is unchanged.
func (k *survivor) check() {
	k.Helper()
	if sb := k.get(); sb.State != bothy.StateRunning {
		k.Fatalf("an untouched sandbox is %s: %+v", sb.State, sb.Ended)
	}
	if got := k.read("/workspace/kept"); got != k.id {
		k.Errorf("its file contains %q", got)
	}
	k.running(k.pid)
	before := k.ticks
	k.sh("", fmt.Sprintf("until [ $(cat /workspace/ticks) -gt %d ]; do sleep 0.05; done", before))
	var err error
	if k.ticks, err = strconv.Atoi(strings.TrimSpace(k.read("/workspace/ticks"))); err != nil {
		k.Error(err)
	}
}

// job is a sandbox of the load. After a crash, its last operation may or may not have been done.
type job struct {
	name             string
	id               string // empty while its creation is unconfirmed
	content          string // of its file; unsure is a write that was not confirmed
	unsure           string
	deleted, leaving bool
	overdue          bool // its time-out has passed at the next start
}

// worker creates, uses and deletes sandboxes until the server is killed.
type worker struct {
	s    *server
	rnd  *rand.Rand
	n    int
	jobs []*job
}

func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.step(ctx); err != nil {
			if bothy.ErrorCode(err) == "server_unreachable" || ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	return nil
}

func (w *worker) step(ctx context.Context) error {
	alive := slices.DeleteFunc(slices.Clone(w.jobs), func(j *job) bool { return j.id == "" || j.deleted || j.leaving || j.overdue })
	if len(alive) == 0 || (len(alive) < 3 && w.rnd.IntN(3) == 0) {
		return w.create(ctx)
	}
	j := alive[w.rnd.IntN(len(alive))]
	if w.rnd.IntN(4) == 0 {
		j.leaving = true
		if err := w.s.Sandboxes.Terminate(ctx, j.id); err != nil {
			return err
		}
		j.deleted = true
		return nil
	}
	w.n++
	j.unsure = fmt.Sprint(w.n)
	r, err := w.s.Exec.Exec(ctx, j.id, bothy.ExecRequest{Command: bothy.Command{Line: "echo -n " + j.unsure + " >/workspace/file"}})
	if err != nil {
		return err
	}
	if r.ExitCode != 0 {
		return fmt.Errorf("writing a file: %+v", r)
	}
	j.content = j.unsure
	return nil
}

func (w *worker) create(ctx context.Context) error {
	w.n++
	j := &job{name: fmt.Sprintf("job-%p-%d", w, w.n), overdue: w.rnd.IntN(4) == 0}
	w.jobs = append(w.jobs, j)
	req := bothy.SandboxCreate{Name: j.name, Template: templateName, MemoryMB: 64, DiskMB: 64, TimeoutSeconds: ptr(600)}
	if j.overdue {
		req.TimeoutSeconds = ptr(1)
	}
	sb, err := w.s.Sandboxes.Create(ctx, req)
	if err != nil {
		return err
	}
	j.id = sb.ID
	return nil
}

// The server is killed at random times under load. After each restart it finds the live sandboxes, ends the
// overdue ones, and has lost, duplicated and leaked nothing.
func TestCrashes(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	rnd := rand.New(rand.NewPCG(seed(t), 0))
	survivors := []*survivor{s.newSurvivor(t), s.newSurvivor(t)}
	workers := []*worker{}
	for i := range 3 {
		workers = append(workers, &worker{s: s, rnd: rand.New(rand.NewPCG(rnd.Uint64(), uint64(i)))})
	}
	made, unknown := 0, 0
	for round := range 12 {
		s.crash(t, workers, time.Duration(100+rnd.IntN(900))*time.Millisecond)
		// Every short time-out has passed by now.
		time.Sleep(1100 * time.Millisecond)
		if err := s.Start(); err != nil {
			t.Fatalf("start after crash %d: %v", round, err)
		}
		for _, w := range workers {
			for _, j := range w.jobs {
				made++
				if j.id == "" || (j.leaving && !j.deleted) || j.unsure != j.content {
					unknown++
				}
			}
		}
		for _, k := range survivors {
			k.check()
		}
		s.checkJobs(t, workers)
		if t.Failed() {
			t.Fatalf("after crash %d", round)
		}
	}
	t.Logf("%d sandboxes were checked, %d of them with an operation in progress", made, unknown)
	if made < 12 || unknown < 6 {
		t.Error("the server was idle at every crash")
	}
}

// crash runs the load for a time and then kills the server.
func (s *server) crash(t *testing.T, workers []*worker, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() {
			if err := w.run(ctx); err != nil {
				t.Errorf("under load: %v", err)
			}
		})
	}
	time.Sleep(after)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if ctx.Err() != nil {
		t.Fatal("the load continued without a server")
	}
}

// checkJobs compares the server's sandboxes with those of the load and with the machines on the host.
func (s *server) checkJobs(t *testing.T, workers []*worker) {
	t.Helper()
	all, err := s.AllSandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byName, ids := map[string]*bothy.Sandbox{}, map[string]bool{}
	for _, sb := range all {
		if ids[sb.ID] || (sb.Name != "" && byName[sb.Name] != nil) {
			t.Errorf("sandbox %s (%s) exists twice", sb.ID, sb.Name)
		}
		ids[sb.ID], byName[sb.Name] = true, sb
		if sb.State != bothy.StateRunning && !sb.State.Ended() {
			t.Errorf("sandbox %s is still %s", sb.ID, sb.State)
		}
		if sb.State.Ended() != (sb.Ended != nil) || (sb.Ended != nil && sb.Ended.Detail == "") {
			t.Errorf("sandbox %s is %s, and ended: %+v", sb.ID, sb.State, sb.Ended)
		}
	}
	for _, w := range workers {
		w.jobs = slices.DeleteFunc(w.jobs, func(j *job) bool { return s.checkJob(t, j, byName[j.name]) })
	}
	s.checkHost(t, all)
}

// checkJob checks a sandbox and reports whether it has ended.
func (s *server) checkJob(t *testing.T, j *job, sb *bothy.Sandbox) (ended bool) {
	t.Helper()
	if sb == nil {
		if j.id != "" {
			t.Errorf("%+v is lost", j)
		}
		return true // it was never created
	}
	b := &box{t, s, t.Context(), sb.ID}
	reason := bothy.EndReason("")
	if sb.Ended != nil {
		reason = sb.Ended.Reason
	}
	switch {
	case j.id != "" && j.id != sb.ID:
		t.Errorf("%+v is now %s", j, sb.ID)
	case j.overdue && j.id != "":
		if reason != bothy.EndTimeout {
			t.Errorf("%+v is overdue, but %s %+v", j, sb.State, sb.Ended)
		}
		return true
	case j.deleted:
		if reason != bothy.EndTerminated {
			t.Errorf("%+v was deleted, but is %s %+v", j, sb.State, sb.Ended)
		}
		return true
	case j.id == "": // its creation was not confirmed, so the load will not use it
		if sb.State == bothy.StateRunning {
			b.usable()
			if err := s.Sandboxes.Terminate(t.Context(), sb.ID); err != nil {
				t.Error(err)
			}
		} else if reason != bothy.EndError && reason != bothy.EndTimeout {
			t.Errorf("%+v was partially created, and is %s %+v", j, sb.State, sb.Ended)
		}
		return true
	case sb.State.Ended():
		if !j.leaving || reason != bothy.EndTerminated {
			t.Errorf("%+v is %s: %+v", j, sb.State, sb.Ended)
		}
		return true
	}
	j.leaving = false
	if j.content+j.unsure == "" {
		b.usable()
	} else if got := b.sh("", "cat /workspace/file 2>/dev/null; true"); got != j.content && got != j.unsure {
		t.Errorf("the file of %+v contains %q", j, got)
	} else {
		j.content = got
	}
	return false
}

// checkHost compares the machines on the host with the running sandboxes.
func (s *server) checkHost(t *testing.T, all []*bothy.Sandbox) {
	t.Helper()
	current, err := s.AllSandboxes(t.Context(), bothy.StateRunning)
	if err != nil {
		t.Fatal(err)
	}
	running := map[string]bool{}
	for _, sb := range current {
		running[sb.ID] = true
	}
	machines, err := os.ReadDir(filepath.Join(s.Home, "machines"))
	if err != nil {
		t.Error(err)
	}
	folders := map[string]bool{}
	for _, m := range machines {
		folders[m.Name()] = true
	}
	groups := map[string]bool{}
	for _, dir := range s.Cgroups("") {
		groups[filepath.Base(dir)] = true
	}
	sentries := map[string]int{}
	for _, p := range s.Processes("") {
		for _, sb := range all {
			if strings.Contains(p.Command, "--bundle="+filepath.Join(s.Home, "machines", sb.ID)+" ") {
				sentries[sb.ID]++
			}
		}
	}
	for id := range running {
		if !folders[id] || !groups[id] || sentries[id] == 0 {
			t.Errorf("running sandbox %s has folder: %v, cgroup: %v, sentries: %d", id, folders[id], groups[id], sentries[id])
		}
	}
	for what, found := range map[string]map[string]bool{"folder": folders, "cgroup": groups} {
		for id := range found {
			if !running[id] {
				t.Errorf("a %s is left of %s", what, id)
			}
		}
	}
	for id := range sentries {
		if !running[id] {
			t.Errorf("a sentry is left of %s", id)
		}
	}
	if n, most := s.namespaces(t), len(running)+1; n > most {
		t.Errorf("%d network namespaces for %d sandboxes", n, len(running))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(mounts, []byte(s.Dir)) {
		t.Errorf("a mount is left, or %v", err)
	}
}

// namespaces counts the network namespaces, other than the host's, of the server's processes and open
// descriptors.
func (s *server) namespaces(t *testing.T) int {
	t.Helper()
	host, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, p := range s.Processes("") {
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.PID)); err == nil && ns != host {
			found[ns] = true
		}
	}
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.PID()))
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "net:[") && to != host {
			found[to] = true
		}
	}
	return len(found)
}

// The server is killed at each step of its operations, between an action and its record.
func TestCrashAtEveryStep(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	k := s.newSurvivor(t)
	create := func(b *box) error {
		sb, err := s.create(t.Context(), bothy.SandboxCreate{Name: "victim", MemoryMB: 64, DiskMB: 64})
		if err == nil {
			b.id = sb.ID
			b.write("/workspace/file", "content")
		}
		return err
	}
	terminate := func(b *box) error { return s.Sandboxes.Terminate(t.Context(), b.id) }
	pause := func(b *box) error {
		_, err := s.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{})
		return err
	}
	resume := func(b *box) error {
		_, err := s.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{})
		return err
	}
	for _, c := range []struct {
		step string
		do   []func(*box) error
		may  []bothy.State
	}{
		{"lifecycle.move.starting", []func(*box) error{create}, nil},
		{"lifecycle.started", []func(*box) error{create}, []bothy.State{bothy.StateFailed}},
		{"lifecycle.adopted", []func(*box) error{create}, []bothy.State{bothy.StateFailed}},
		{"lifecycle.move.running", []func(*box) error{create}, []bothy.State{bothy.StateFailed}},
		{"lifecycle.move.stopping", []func(*box) error{create, terminate}, []bothy.State{bothy.StateRunning}},
		{"lifecycle.move.stopped", []func(*box) error{create, terminate}, []bothy.State{bothy.StateStopped}},
		{"lifecycle.move.pausing", []func(*box) error{create, pause}, []bothy.State{bothy.StateRunning}},
		{"lifecycle.freeze", []func(*box) error{create, pause}, []bothy.State{bothy.StateRunning}},
		{"lifecycle.frozen", []func(*box) error{create, pause}, []bothy.State{bothy.StateRunning}},
		{"blob.commit", []func(*box) error{create, pause}, []bothy.State{bothy.StateRunning}},
		{"blob.renamed", []func(*box) error{create, pause}, []bothy.State{bothy.StatePaused}},
		{"lifecycle.sealed", []func(*box) error{create, pause}, []bothy.State{bothy.StatePaused}},
		{"lifecycle.move.paused", []func(*box) error{create, pause}, []bothy.State{bothy.StatePaused}},
		{"lifecycle.move.resuming", []func(*box) error{create, pause, resume}, []bothy.State{bothy.StatePaused}},
	} {
		if os.Getenv(testserver.StoreVariable) != "" && !strings.HasPrefix(c.step, "lifecycle.move.") {
			continue // only the steps that record a state use the database
		}
		if err := errors.Join(s.Stop(), s.Start(c.step+"=kill")); err != nil {
			t.Fatal(err)
		}
		b := &box{t, s, t.Context(), ""}
		var err error
		for _, do := range c.do {
			if err = do(b); err != nil {
				break
			}
		}
		if bothy.ErrorCode(err) != "server_unreachable" {
			t.Fatalf("%s: the server is still running: %v", c.step, err)
		}
		if err := errors.Join(s.Dies(), s.Start()); err != nil {
			t.Fatal(err)
		}
		k.check()
		s.checkVictim(t, c.step, c.may)
	}
}

// checkVictim checks that the sandbox is in one of the allowed states and usable, after a resume if it is
// paused, and that nothing else is left. It terminates the sandbox.
func (s *server) checkVictim(t *testing.T, step string, may []bothy.State) {
	t.Helper()
	all, err := s.AllSandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.checkHost(t, all)
	all = slices.DeleteFunc(all, func(sb *bothy.Sandbox) bool {
		return sb.Name != "victim" || time.Since(sb.CreatedAt) > hangs || s.seen[sb.ID]
	})
	if len(all) != min(len(may), 1) {
		t.Fatalf("%s: there are %d sandboxes, want %d", step, len(all), min(len(may), 1))
	}
	if len(all) == 0 {
		return
	}
	sb := all[0]
	s.seen[sb.ID] = true
	if !slices.Contains(may, sb.State) {
		t.Fatalf("%s: the sandbox is %s (%+v), want %v", step, sb.State, sb.Ended, may)
	}
	b := &box{t, s, t.Context(), sb.ID}
	if sb.State == bothy.StatePaused {
		if _, err := s.Snapshots.Resume(t.Context(), sb.ID, bothy.ResumeOptions{}); err != nil {
			t.Fatalf("%s: resume: %v", step, err)
		}
	}
	if !sb.State.Ended() {
		if got := b.read("/workspace/file"); got != "content" {
			t.Errorf("%s: the file contains %q", step, got)
		}
		b.usable()
	} else if sb.Ended.Reason == "" || sb.Ended.Detail == "" {
		t.Errorf("%s: the sandbox ended: %+v", step, sb.Ended)
	}
	if err := s.Sandboxes.Terminate(t.Context(), sb.ID); err != nil {
		t.Errorf("%s: terminate: %v", step, err)
	}
}
