package snapshots

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/test/testserver"
)

// become replaces the server by another build of it; "" is the one under test.
func (s *server) become(t *testing.T, name string) {
	t.Helper()
	s.Binary = ""
	if name != "" {
		s.Binary = testserver.Variant(t, name)
	}
	s.restart(t)
}

// builds are the records of engine builds that a server has kept.
func (s *server) builds(t *testing.T) (names []string) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(s.Home, "engines/builds/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		names = append(names, strings.TrimSuffix(filepath.Base(r), ".json"))
	}
	return names
}

// mark is the file in which a template says by which server it was made.
const mark = "/etc/made-under"

// remakes makes a template again, with another image.
func (s *server) remakes(t *testing.T, name, by string) {
	t.Helper()
	b, err := s.Builder.StartBuild(t.Context(), bothy.BuildRequest{
		Name: name, Dockerfile: fmt.Sprintf("FROM %s\nRUN echo %s >%s\n", testserver.Template, by, mark),
	})
	if err == nil {
		err = s.Builder.BuildLog(t.Context(), b.ID, 0, func(int64, bothy.BuildEvent) error { return nil })
	}
	if err == nil {
		b, err = s.Builder.Build(t.Context(), b.ID)
	}
	if err != nil || b.State != bothy.BuildSucceeded {
		t.Fatalf("the template under %s: %+v, %v", by, b, err)
	}
}

// forget removes a template, and the snapshots that need its images.
func (s *server) forget(t *testing.T, name string) {
	ctx := context.Background()
	p, err := s.Snapshots.Snapshots(ctx, bothy.SnapshotFilter{Limit: 1000})
	if err != nil {
		t.Error(err)
	}
	for _, n := range p.Items {
		_ = s.Snapshots.DeleteSnapshot(ctx, n.ID) // one that is needed by another goes with that
	}
	if err := s.Templates.RemoveTemplate(ctx, name); err != nil {
		t.Error(err)
	}
}

// madeUnder checks in which image a sandbox stands.
func (b *box) madeUnder(want string) {
	b.Helper()
	if got := strings.TrimSpace(b.sh("cat " + mark)); got != want {
		b.Errorf("the sandbox stands in the template of %s, not of %s", got, want)
	}
}

// TestMemoryOutlivesUpgrades pauses under one build, and goes up and down through others,
// each of which has also made the sandbox's template again.
func TestMemoryOutlivesUpgrades(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "B") // before the server's time counts
	testserver.Variant(t, "C")
	s := stoppedServer(t)
	s.NoPool = true
	s.become(t, "")
	first := s.builds(t)
	if len(first) != 1 {
		t.Fatalf("the first server has kept %v", first)
	}
	name := fmt.Sprintf("upgraded-%d", os.Getpid())
	s.remakes(t, name, "A")
	t.Cleanup(func() { s.forget(t, name) })
	b := s.newBox(t, bothy.SandboxCreate{Template: name})
	b.startCounter()
	before := b.counter()
	named := b.snapshot("by A")
	b.pause()

	s.become(t, "B")
	s.remakes(t, name, "B")
	b.wokenWithMemory(b.resume(b.id))
	b.wentOn(before)
	b.madeUnder("A")
	b.sh("echo under B >/workspace/b")
	before = b.counter()
	later := b.snapshot("under B, by A")
	if later.Kind != bothy.SnapshotMemory {
		t.Errorf("the snapshot of a sandbox of an earlier build is %+v", later)
	}
	copies := b.fork(2)
	for _, c := range copies {
		c.wentOn(before)
		c.madeUnder("A")
	}
	b.turnBack(named)
	if out, err := b.try("cat /workspace/b"); err == nil {
		t.Errorf("after the rollback there is still %q", out)
	}
	b.turnBack(later)
	b.wentOn(before)
	// One of B's own, beside it.
	own := s.newBox(t, bothy.SandboxCreate{Template: name})
	own.madeUnder("B")
	own.startCounter()
	ownBefore := own.counter()
	own.pause()
	before = b.counter()

	s.become(t, "C") // which finds b running
	s.remakes(t, name, "C")
	b.wentOn(before)
	b.madeUnder("A")
	before = b.counter()
	if n := b.pause(); n.Kind != bothy.SnapshotMemory {
		t.Errorf("the pause of a sandbox that ran through an upgrade is %+v", n)
	}
	b.wokenWithMemory(b.resume(b.id))
	b.wentOn(before)
	own.wokenWithMemory(own.resume(own.id))
	own.wentOn(ownBefore)
	own.madeUnder("B")
	for _, c := range copies {
		c.wentOn(count{pid: before.pid, seed: before.seed})
	}
	before, ownBefore = b.counter(), own.counter()
	b.pause()
	own.pause()
	if kept := s.builds(t); len(kept) != 3 {
		t.Errorf("C has kept %v", kept)
	}

	s.become(t, "") // and down again
	b.wokenWithMemory(b.resume(b.id))
	b.wentOn(before)
	own.wokenWithMemory(own.resume(own.id))
	own.wentOn(ownBefore)
	b.madeUnder("A")
	own.madeUnder("B")
	if kept := s.builds(t); len(kept) != 2 || slices.Contains(kept, "") {
		t.Errorf("of three builds, of which C's is needed by nothing, there are %v", kept)
	}
	files, err := os.ReadDir(filepath.Join(s.Home, "engines"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			t.Errorf("%s is left", f.Name())
		}
	}
}

// TestRefusedBuildGivesItsFiles names a build in the settings.
func TestRefusedBuildGivesItsFiles(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "B")
	s := stoppedServer(t)
	s.NoPool = true
	s.become(t, "B")
	build := s.builds(t)[0]
	b, runs := s.newBox(t, bothy.SandboxCreate{}), s.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	runs.startCounter()
	before := runs.counter()
	b.pause()
	s.Settings = "engines: {refuse: [" + build + "]}\n"
	s.become(t, "")
	sb := b.resume(b.id)
	b.filesOnly(sb)
	if !strings.Contains(sb.Resumed.Detail, build) || !strings.Contains(sb.Resumed.Detail, "engines.refuse") {
		t.Errorf("detail %q", sb.Resumed.Detail)
	}
	runs.wentOn(before)
	if n := runs.pause(); n.Kind != bothy.SnapshotFiles || !strings.Contains(n.Detail, "engines.refuse") {
		t.Errorf("a machine of a refused build is paused as %+v", n)
	}
	s.Binary = testserver.Variant(t, "B")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err == nil {
		t.Error("a server starts whose own build is refused")
	}
	s.become(t, "")
}

// wokenWithMemory checks how a sandbox came back.
func (b *box) wokenWithMemory(sb *bothy.Sandbox) {
	b.Helper()
	if sb.Resumed == nil || sb.Resumed.Kind != bothy.SnapshotMemory {
		b.Fatalf("resumed: %+v", sb.Resumed)
	}
}

func (b *box) turnBack(to *bothy.Snapshot) {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	sb, err := b.s.Snapshots.Rollback(ctx, b.id, to.ID)
	if err != nil {
		b.Fatalf("roll back: %v", err)
	}
	b.wokenWithMemory(sb)
}
