package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle"
)

func (w *world) pause(id string) *bothy.Snapshot {
	w.t.Helper()
	n, err := w.Pause(w.me(), id, bothy.PauseOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func TestPauseAndResume(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkRestricted}})
	before := w.guests.last().identity()
	n := w.pause(sb.ID)
	if n.SandboxID != sb.ID || n.Kind != bothy.SnapshotMemory || n.SizeBytes == 0 {
		t.Errorf("snapshot %+v", n)
	}
	got := w.get(sb.ID)
	if got.State != bothy.StatePaused || got.ExpiresAt != nil || w.Live() != 0 {
		t.Errorf("paused: %+v, %d live", got, w.Live())
	}
	_, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}})
	wantCode(t, err, bothy.CodeSandboxPaused)
	_, err = w.Pause(w.me(), sb.ID, bothy.PauseOptions{})
	wantCode(t, err, bothy.CodeSandboxPaused)
	wantCode(t, w.DeleteSnapshot(w.me(), n.ID), bothy.CodeSnapshotInUse)

	w.restart()
	back, err := w.Resume(w.me(), n.ID, bothy.ResumeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if back.ID != sb.ID || back.State != bothy.StateRunning || back.Resumed == nil || back.Resumed.Kind != bothy.SnapshotMemory || back.Network.Mode != bothy.NetworkRestricted {
		t.Errorf("resumed as %+v", back)
	}
	after := w.guests.last().identity()
	if w.guests.last().firstKey != before.Key || after.Key == before.Key || after.MachineID != before.MachineID {
		t.Errorf("identity before %+v, after %+v", before, after)
	}
	_, err = w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeConflict)

	// A later pause replaces the snapshot of the previous one.
	second := w.pause(sb.ID)
	_, err = w.Snapshot(w.me(), n.ID)
	wantCode(t, err, bothy.CodeSnapshotNotFound)
	if err := w.Terminate(w.me(), sb.ID); err != nil {
		t.Fatal(err)
	}
	_, err = w.Snapshot(w.me(), second.ID)
	wantCode(t, err, bothy.CodeSnapshotNotFound)
	w.noBlobs()
}

func (w *world) noBlobs() {
	w.t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.dir, "snapshots"))
	if err != nil || len(entries) != 0 {
		w.t.Errorf("snapshots left on disk: %v, %v", entries, err)
	}
}

func TestAPauseThatFailsAtAnyStepLeavesTheSandboxRunning(t *testing.T) {
	boom := errors.New("boom")
	for _, point := range []string{"lifecycle.move.pausing", "lifecycle.freeze", "lifecycle.frozen", "blob.commit", "blob.synced", "blob.renamed", "lifecycle.sealed", "lifecycle.move.paused"} {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t)
			sb := w.create(bothy.SandboxCreate{})
			remove := failpoint.Set(point, func() error { return boom })
			_, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{})
			remove()
			if err == nil {
				t.Fatal("it succeeded")
			}
			if got := w.get(sb.ID); got.State != bothy.StateRunning {
				t.Fatalf("it is %s", got.State)
			}
			if _, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
				t.Errorf("it cannot be used: %v", err)
			}
			// It can be paused later.
			w.pause(sb.ID)
			if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAResumeThatFailsLeavesTheSandboxPaused(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	n := w.pause(sb.ID)
	w.guests.failAdopt = errors.New("boom")
	if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err == nil {
		t.Fatal("the resume succeeded although the adoption failed")
	}
	w.guests.failAdopt = nil
	if got := w.get(sb.ID); got.State != bothy.StatePaused || w.Live() != 0 {
		t.Fatalf("it is %s", got.State)
	}
	state := filepath.Join(w.dir, "snapshots", n.ID, "memory", "state.json")
	good, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, []byte(strings.Replace(string(good), "build-1", "build-x", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeSnapshotDamaged)
	if ids, err := w.engine.Sweep(t.Context(), func(string) bool { return false }); err != nil || len(ids) > 0 || w.Live() != 0 {
		t.Errorf("a damaged snapshot left %v, %v", ids, err)
	}
	if err := os.WriteFile(state, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil {
		t.Errorf("the next resume: %v", err)
	}
}

func TestFilesSurviveAnUpgradeOfTheEngine(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	w.pause(sb.ID)
	w.closeServer()
	w.build = "build-2"
	w.open()
	back, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if back.Resumed.Kind != bothy.SnapshotFiles || !strings.Contains(back.Resumed.Detail, "processes are gone") {
		t.Errorf("it was resumed as %+v", back.Resumed)
	}
}

// The memory of a virtual machine cannot be restored on a host whose clock has another rate: only the
// files are.
func TestUnusableMemoryIsResumedWithFilesOnly(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	if n, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); err != nil || n.Kind != bothy.SnapshotMemory {
		t.Fatalf("%+v, %v", n, err)
	}
	const why = "the memory was written under another moon"
	w.host.FailRestore = func(string) error {
		return bothy.Errorf(bothy.CodeUnsupported, why).Because(bothy.ErrMemoryUnusable)
	}
	back, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if back.Resumed.Kind != bothy.SnapshotFiles || !strings.HasPrefix(back.Resumed.Detail, why) || !strings.Contains(back.Resumed.Detail, "processes are gone") {
		t.Errorf("it was resumed as %+v", back.Resumed)
	}

	// Other unsupported restores are errors, such as a limit that is too large.
	if _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	w.host.FailRestore = func(string) error { return bothy.Errorf(bothy.CodeUnsupported, "too large") }
	if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); bothy.ErrorCode(err) != bothy.CodeUnsupported {
		t.Errorf("the other error became %v", err)
	}
}

func TestFilesOnly(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	n, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{FilesOnly: true})
	if err != nil || n.Kind != bothy.SnapshotFiles {
		t.Fatalf("%+v, %v", n, err)
	}
	back, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
	if err != nil || back.Resumed.Kind != bothy.SnapshotFiles {
		t.Fatalf("%+v, %v", back, err)
	}
}

// A sandbox that was paused with its memory can be resumed with its files only, even if its memory cannot
// be restored. A snapshot without memory can be taken of a running sandbox.
func TestMemoryCanBeLeftOut(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	if n := w.pause(sb.ID); n.Kind != bothy.SnapshotMemory {
		t.Fatalf("%+v", n)
	}
	w.host.FailRestore = func(string) error { return errors.New("the guest is stuck") }
	if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err == nil {
		t.Fatal("it was resumed with its memory")
	}
	back, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{FilesOnly: true})
	if err != nil || back.State != bothy.StateRunning || back.Resumed.Kind != bothy.SnapshotFiles || !strings.Contains(back.Resumed.Detail, "as requested") {
		t.Fatalf("%+v, %v", back, err)
	}
	w.host.FailRestore = nil
	n, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "files", FilesOnly: true})
	if err != nil || n.Kind != bothy.SnapshotFiles || n.Name != "files" || n.Detail != "" {
		t.Fatalf("%+v, %v", n, err)
	}
	if got := w.row(sb.ID); got.State != bothy.StateRunning || got.HeadSnapshotID != n.ID {
		t.Errorf("after the snapshot: %+v", got)
	}
	if copied := w.create(bothy.SandboxCreate{SnapshotID: n.ID}); copied.Resumed == nil || copied.Resumed.Kind != bothy.SnapshotFiles {
		t.Errorf("a sandbox from it: %+v", copied)
	}
	// The next pause includes memory again.
	w.pause(sb.ID)
	if back, err = w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil || back.Resumed.Kind != bothy.SnapshotMemory {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestForkIsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{Env: map[string]string{"A": "b"}, TimeoutSeconds: seconds(77)})
	forks, err := w.Fork(w.me(), sb.ID, bothy.ForkRequest{Count: 5, Name: "try", Env: map[string]string{"C": "d"}})
	if err != nil || len(forks) != 5 {
		t.Fatalf("%v, %v", forks, err)
	}
	ids := map[string]bool{}
	machines := map[string]bool{}
	for _, f := range forks {
		ids[f.ID] = true
		if f.State != bothy.StateRunning || f.Env["A"] != "b" || f.Env["C"] != "d" || f.TimeoutSeconds != 77 || !strings.HasPrefix(f.Name, "try-") {
			t.Errorf("copy %+v", f)
		}
	}
	for _, g := range w.guests.all {
		if id := g.identity(); ids[id.SandboxID] {
			machines[id.MachineID] = true
		}
	}
	if len(ids) != 5 || len(machines) != 5 {
		t.Errorf("copies share identities: %v, %v", ids, machines)
	}
	w.noBlobs()

	var mu sync.Mutex
	starts := 0
	w.host.FailStart = func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if starts++; starts == 3 {
			return errors.New("boom")
		}
		return nil
	}
	before := w.Live()
	if _, err := w.Fork(w.me(), sb.ID, bothy.ForkRequest{Count: 5}); err == nil {
		t.Fatal("the fork succeeded although one copy failed")
	}
	if n := w.Live(); n != before {
		t.Errorf("%d live before, %d after", before, n)
	}
	w.host.FailStart = nil
	_, err = w.Fork(w.me(), sb.ID, bothy.ForkRequest{Count: 1000})
	wantCode(t, err, bothy.CodeInvalid)
	if err := w.Terminate(w.me(), sb.ID); err != nil {
		t.Fatal(err)
	}
	_, err = w.Fork(w.me(), sb.ID, bothy.ForkRequest{})
	wantCode(t, err, bothy.CodeSandboxEnded)
}

func TestSnapshotTreeAndRollback(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	one, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	two, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "two"})
	if err != nil {
		t.Fatal(err)
	}
	if one.ParentID != "" || two.ParentID != one.ID {
		t.Errorf("tree: %q, %q", one.ParentID, two.ParentID)
	}
	back, err := w.Rollback(w.me(), sb.ID, one.ID)
	if err != nil || back.ID != sb.ID || back.State != bothy.StateRunning {
		t.Fatalf("%+v, %v", back, err)
	}
	three, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "three"})
	if err != nil || three.ParentID != one.ID {
		t.Errorf("after the rollback the parent is %q, %v", three.ParentID, err)
	}
	p, err := w.Snapshots(w.me(), bothy.SnapshotFilter{SandboxID: sb.ID})
	if err != nil || len(p.Items) != 4 {
		t.Fatalf("there are %d snapshots, %v: the state before the rollback must be kept", len(p.Items), err)
	}
	other := w.create(bothy.SandboxCreate{})
	_, err = w.Rollback(w.me(), other.ID, one.ID)
	wantCode(t, err, bothy.CodeInvalid)

	child := w.create(bothy.SandboxCreate{SnapshotID: two.ID})
	if child.ParentSnapshotID != two.ID || child.ID == sb.ID {
		t.Errorf("from a snapshot: %+v", child)
	}
	for _, n := range p.Items {
		if err := w.DeleteSnapshot(w.me(), n.ID); err != nil {
			t.Error(err)
		}
	}
	w.noBlobs()
	// Sandboxes that were created from them remain.
	if got := w.get(child.ID); got.State != bothy.StateRunning {
		t.Errorf("child %+v", got)
	}
}

func TestConcurrentPauses(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			sb, err := w.Create(w.me(), bothy.SandboxCreate{})
			if err == nil {
				_, err = w.Pause(w.me(), sb.ID, bothy.PauseOptions{})
			}
			if err == nil {
				_, err = w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
			}
			if err == nil {
				err = w.Terminate(w.me(), sb.ID)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if w.Live() != 0 {
		t.Errorf("%d live", w.Live())
	}
	w.noBlobs()
}

func TestExportAndImport(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	other.trusts(w)
	sb := w.create(bothy.SandboxCreate{Env: map[string]string{"A": "b"}, MemoryMB: 256})
	n, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "luggage"})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := w.ExportSnapshot(w.me(), n.ID, "", &b); err != nil {
		t.Fatal(err)
	}
	wantCode(t, w.ExportSnapshot(as(t, "theirs"), n.ID, "", io.Discard), bothy.CodeSnapshotNotFound)
	in, err := other.ImportSnapshot(other.me(), "", "", bytes.NewReader(b.Bytes()))
	if err != nil || in.Name != "luggage" || in.ID == n.ID {
		t.Fatalf("%+v, %v", in, err)
	}
	back := other.create(bothy.SandboxCreate{SnapshotID: in.ID})
	if back.Env["A"] != "b" || back.MemoryMB != 256 || back.Resumed.Kind != bothy.SnapshotMemory {
		t.Errorf("imported and resumed as %+v", back)
	}
	_, err = other.ImportSnapshot(other.me(), "", "", strings.NewReader("nonsense"))
	wantCode(t, err, bothy.CodeSnapshotDamaged)
	if entries, err := os.ReadDir(filepath.Join(other.dir, "snapshots")); err != nil || len(entries) != 1 {
		t.Errorf("a failed import left %v, %v", entries, err)
	}
}

// firstWrite calls a function at the first write.
type firstWrite struct {
	io.Writer
	do func()
}

func (f *firstWrite) Write(b []byte) (int, error) {
	if f.do != nil {
		f.do()
		f.do = nil
	}
	return f.Writer.Write(b)
}

func TestDeletedWhileItIsExported(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	n, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	into := &firstWrite{&b, func() {
		if err := w.DeleteSnapshot(w.me(), n.ID); err != nil {
			t.Error(err)
		}
		wantCode(t, w.ExportSnapshot(w.me(), n.ID, "", io.Discard), bothy.CodeSnapshotNotFound)
	}}
	if err := w.ExportSnapshot(w.me(), n.ID, "", into); err != nil {
		t.Fatal(err)
	}
	if _, err := other.ImportSnapshot(other.me(), "", "", &b); err != nil {
		t.Error(err)
	}
	w.noBlobs()
}

func TestRetention(t *testing.T) {
	w := newWorld(t)
	w.retention = lifecycle.Retention{PerSandbox: 2, For: time.Hour, ProjectBytes: 1 << 40}
	w.closeServer()
	w.open()
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	for _, name := range []string{"one", "two", "three"} {
		if _, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: name}); err != nil {
			t.Fatal(err)
		}
		w.clock.pass(time.Minute)
	}
	names := func() (out []string) {
		p, err := w.Snapshots(w.me(), bothy.SnapshotFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range p.Items {
			out = append(out, n.Name)
		}
		return out
	}
	w.Prune(t.Context())
	if got := names(); fmt.Sprint(got) != "[three two]" {
		t.Errorf("%v of three snapshots were kept, with room for two", got)
	}
	w.pause(sb.ID)
	w.clock.pass(2 * time.Hour)
	w.Prune(t.Context())
	if got := names(); len(got) != 1 || got[0] != "" {
		t.Errorf("%q were kept: only the snapshot that the sandbox is paused in may stay", got)
	}
	w.retention = lifecycle.Retention{ProjectBytes: 1}
	w.closeServer()
	w.open()
	if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "more"})
	wantCode(t, err, bothy.CodeQuota)
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("over the quota it is %s", got.State)
	}
}

// When the server is replaced by one with another engine build, the memory of running sandboxes is still
// that of the earlier build.
func TestSnapshotsAfterAnUpgradeHaveTheirMachinesBuild(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	w.build = "build-2"
	w.restart()
	copies, err := w.Fork(w.me(), sb.ID, bothy.ForkRequest{Count: 1})
	if err != nil || copies[0].Resumed.Kind != bothy.SnapshotFiles {
		t.Fatalf("a fork of it: %+v, %v", copies, err)
	}
	live, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "live"})
	if err != nil {
		t.Fatal(err)
	}
	for what, n := range map[string]*bothy.Snapshot{"a snapshot": live, "a pause": w.pause(sb.ID)} {
		if n.Kind != bothy.SnapshotFiles || !strings.Contains(n.Detail, "build-1") || !strings.Contains(n.Detail, "without its processes") {
			t.Errorf("%s: %+v", what, n)
		}
		if listed, err := w.Snapshot(w.me(), n.ID); err != nil || listed.Kind != n.Kind || listed.Detail != n.Detail {
			t.Errorf("%s is listed as %+v, %v", what, listed, err)
		}
	}
	back, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
	if err != nil || back.Resumed.Kind != bothy.SnapshotFiles || !strings.Contains(back.Resumed.Detail, "build-1") {
		t.Fatalf("resumed as %+v, %v", back, err)
	}
	// A resumed sandbox runs on the new build.
	w.pause(sb.ID)
	if back, err = w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil || back.Resumed.Kind != bothy.SnapshotMemory {
		t.Errorf("resumed again as %+v, %v", back, err)
	}
}

func TestARollbackThatFailsLeavesTheSandboxAsItWas(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	n, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "then"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.dir, "snapshots", n.ID, "memory", "state.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bothy.State{bothy.StateRunning, bothy.StatePaused} {
		_, err = w.Rollback(w.me(), sb.ID, n.ID)
		wantCode(t, err, bothy.CodeSnapshotDamaged)
		if got := w.get(sb.ID); got.State != want {
			t.Fatalf("it is %s, want %s", got.State, want)
		}
		if want == bothy.StateRunning {
			w.pause(sb.ID)
		}
	}
	if back, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil || back.Resumed.Kind != bothy.SnapshotMemory {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestDamagedMemoryFailsAtOnce(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	n := w.pause(sb.ID)
	state := filepath.Join(w.dir, "snapshots", n.ID, "memory", "state.json")
	if err := os.WriteFile(state, []byte(`{"stuck": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeSnapshotDamaged)
	if sb, err := w.Get(w.me(), sb.ID); err != nil || sb.State != bothy.StatePaused {
		t.Errorf("%+v, %v", sb, err)
	}
}

// The old machine ends before or while the new one starts.
func TestRollbackWhileTheMachineEnds(t *testing.T) {
	for name, start := range map[string]error{
		"side by side":        nil,
		"one after the other": bothy.Errorf(bothy.CodeConflict, "the machine exists already"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			sb := w.create(bothy.SandboxCreate{})
			n, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "then"})
			if err != nil {
				t.Fatal(err)
			}
			started := make(chan struct{})
			var once sync.Once
			w.host.Destroying = func(string) { <-started }
			w.host.FailStart = func(string) (err error) {
				once.Do(func() {
					err = start
					close(started)
				})
				return err
			}
			back, err := w.Rollback(w.me(), sb.ID, n.ID)
			if err != nil || back.State != bothy.StateRunning || w.row(sb.ID).HeadSnapshotID != n.ID {
				t.Errorf("rolled back as %+v, %v", back, err)
			}
		})
	}
}

// A machine that was restored in advance is destroyed if it is not needed.
func TestARollbackThatCannotPause(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	n, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "then"})
	if err != nil {
		t.Fatal(err)
	}
	before := w.host.Machine(sb.ID)
	w.t.Cleanup(failpoint.Set("lifecycle.frozen", func() error {
		for w.host.Machine(sb.ID) == before {
			runtime.Gosched() // until the other machine exists
		}
		return errors.New("boom")
	}))
	if _, err := w.Rollback(w.me(), sb.ID, n.ID); err == nil {
		t.Fatal("the rollback succeeded")
	}
	if now := w.host.Machine(sb.ID); now != before {
		t.Errorf("the machine is %p, and was %p", now, before)
	}
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("it is %s", got.State)
	}
	if ids := w.host.IDs(); len(ids) != 1 {
		t.Errorf("the machines are %v", ids)
	}
}

// A sandbox can also be rolled back to the unnamed snapshot of an earlier pause.
func TestRollbackToAnEarlierPause(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	n := w.pause(sb.ID)
	if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	back, err := w.Rollback(w.me(), sb.ID, n.ID)
	if err != nil || back.State != bothy.StateRunning {
		t.Fatalf("rolled back as %+v, %v", back, err)
	}
	if _, err := w.Service.Snapshot(w.me(), n.ID); err != nil {
		t.Errorf("the snapshot that it was rolled back to: %v", err)
	}
}

// Snapshots of other hosts, of which this host has only the record, need their builds too.
func TestBuildsAreNeededBySnapshotsOfOtherHosts(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	if _, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{}); err != nil {
		t.Fatal(err)
	}
	far := &bothy.Snapshot{ID: "snpfar", ProjectID: "mine", CreatedAt: w.clock.Now(), Needs: &bothy.MemoryNeeds{Engine: "fake", Build: "build-0"}}
	if err := w.store.PutSnapshot(t.Context(), far); err != nil {
		t.Fatal(err)
	}
	if got, err := w.NeededBuilds(t.Context()); err != nil || !maps.Equal(got, map[string]int{"build-1": 1, "build-0": 1}) {
		t.Errorf("the needed builds are %v, %v", got, err)
	}
}

// After a snapshot that failed, the guest has its whole time to thaw, however long the snapshot took.
func TestAGuestHasItsTimeToThaw(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	g := w.guests.last()
	w.host.Snapshotting = func(context.Context, string) error { return errors.New("boom") }
	if _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); err == nil {
		t.Fatal("the pause did not fail")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.deadlines; len(d) != 2 || !d[1].After(d[0]) {
		t.Errorf("to freeze and to thaw it may take until %v", d)
	}
}

// A copy says which sandbox it is a copy of, and when their lives parted.
func TestCopiesKnowTheirParent(t *testing.T) {
	w := newWorld(t)
	root := w.create(bothy.SandboxCreate{})
	w.clock.pass(time.Minute)
	n, err := w.CreateSnapshot(w.me(), root.ID, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	w.clock.pass(time.Minute)
	forkOf := func(id string) *bothy.Sandbox {
		t.Helper()
		copies, err := w.Fork(w.me(), id, bothy.ForkRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return w.get(copies[0].ID)
	}
	child := forkOf(root.ID)
	forked := w.clock.Now()
	w.clock.pass(time.Minute)
	grandchild := forkOf(child.ID)
	twin := w.get(w.create(bothy.SandboxCreate{SnapshotID: n.ID}).ID)
	if err := w.Terminate(w.me(), root.ID); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		what   string
		sb     *bothy.Sandbox
		parent string
		at     time.Time
	}{
		{"a fork", child, root.ID, forked},
		{"a fork of a fork", grandchild, child.ID, forked.Add(time.Minute)},
		{"a sandbox from a snapshot", twin, root.ID, n.CreatedAt},
	} {
		if x.sb.ParentSandboxID != x.parent || x.sb.ForkedAt == nil || !x.sb.ForkedAt.Equal(x.at) {
			t.Errorf("%s has the parent %q at %v, want %q at %v", x.what, x.sb.ParentSandboxID, x.sb.ForkedAt, x.parent, x.at)
		}
	}
	if sb := w.get(root.ID); sb.ParentSandboxID != "" || sb.ForkedAt != nil {
		t.Errorf("a sandbox of a template has the parent %q at %v", sb.ParentSandboxID, sb.ForkedAt)
	}
}
