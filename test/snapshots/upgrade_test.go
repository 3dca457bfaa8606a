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

// replaceWith replaces the server with another build of it; "" is the build under test.
func (s *server) replaceWith(t *testing.T, name string) {
	t.Helper()
	s.Binary = ""
	if name != "" {
		s.Binary = testserver.Variant(t, name)
	}
	s.restart(t)
}

// builds returns the engine builds that a server has kept.
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

// mark is a file in a template that names the server that made it.
const mark = "/etc/made-under"

// remakes builds a template again with another image.
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

// forget removes a template and the snapshots that need its images.
func (s *server) forget(t *testing.T, name string) {
	ctx := context.Background()
	p, err := s.Snapshots.Snapshots(ctx, bothy.SnapshotFilter{Limit: 1000})
	if err != nil {
		t.Error(err)
	}
	for _, n := range p.Items {
		_ = s.Snapshots.DeleteSnapshot(ctx, n.ID) // some are deleted together with snapshots that need them
	}
	if err := s.Templates.RemoveTemplate(ctx, name); err != nil {
		t.Error(err)
	}
}

// madeUnder checks which image a sandbox uses.
func (b *box) madeUnder(want string) {
	b.Helper()
	if got := strings.TrimSpace(b.sh("cat " + mark)); got != want {
		b.Errorf("the sandbox uses the template of %s, want %s", got, want)
	}
}

// TestMemoryOutlivesUpgrades pauses under one build, and upgrades and downgrades to others, each of which
// has also rebuilt the sandbox's template.
func TestMemoryOutlivesUpgrades(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "B") // before the server starts
	testserver.Variant(t, "C")
	s := stoppedServer(t)
	s.NoPool = true
	s.replaceWith(t, "")
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

	s.replaceWith(t, "B")
	s.remakes(t, name, "B")
	b.resumedWithMemory(b.resume(b.id))
	b.continued(before)
	b.madeUnder("A")
	b.sh("echo under B >/workspace/b")
	before = b.counter()
	later := b.snapshot("under B, by A")
	if later.Kind != bothy.SnapshotMemory {
		t.Errorf("the snapshot of a sandbox of an earlier build is %+v", later)
	}
	copies := b.fork(2)
	for _, c := range copies {
		c.continued(before)
		c.madeUnder("A")
	}
	b.rollBack(named)
	if out, err := b.try("cat /workspace/b"); err == nil {
		t.Errorf("after the rollback there is %q", out)
	}
	b.rollBack(later)
	b.continued(before)
	// Another sandbox, created under B.
	own := s.newBox(t, bothy.SandboxCreate{Template: name})
	own.madeUnder("B")
	own.startCounter()
	ownBefore := own.counter()
	own.pause()
	before = b.counter()

	s.replaceWith(t, "C") // while b is running
	s.remakes(t, name, "C")
	b.continued(before)
	b.madeUnder("A")
	before = b.counter()
	if n := b.pause(); n.Kind != bothy.SnapshotMemory {
		t.Errorf("a pause of a sandbox that was running during an upgrade is %+v", n)
	}
	b.resumedWithMemory(b.resume(b.id))
	b.continued(before)
	own.resumedWithMemory(own.resume(own.id))
	own.continued(ownBefore)
	own.madeUnder("B")
	for _, c := range copies {
		c.continued(count{pid: before.pid, seed: before.seed})
	}
	before, ownBefore = b.counter(), own.counter()
	b.pause()
	own.pause()
	if kept := s.builds(t); len(kept) != 3 {
		t.Errorf("C has kept %v", kept)
	}

	s.replaceWith(t, "") // a downgrade
	b.resumedWithMemory(b.resume(b.id))
	b.continued(before)
	own.resumedWithMemory(own.resume(own.id))
	own.continued(ownBefore)
	b.madeUnder("A")
	own.madeUnder("B")
	if kept := s.builds(t); len(kept) != 2 || slices.Contains(kept, "") {
		t.Errorf("the builds are %v, where C's is no longer needed", kept)
	}
	files, err := os.ReadDir(filepath.Join(s.Home, "engines"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			t.Errorf("the file %s is left", f.Name())
		}
	}
}

// TestRefusedBuildGivesItsFiles refuses a build in the settings: its snapshots are resumed with their
// files only.
func TestRefusedBuildGivesItsFiles(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "B")
	s := stoppedServer(t)
	s.NoPool = true
	s.replaceWith(t, "B")
	build := s.builds(t)[0]
	b, runs := s.newBox(t, bothy.SandboxCreate{}), s.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	runs.startCounter()
	before := runs.counter()
	b.pause()
	s.Settings = "engines: {refuse: [" + build + "]}\n"
	s.replaceWith(t, "")
	sb := b.resume(b.id)
	b.filesOnly(sb)
	if !strings.Contains(sb.Resumed.Detail, build) || !strings.Contains(sb.Resumed.Detail, "engines.refuse") {
		t.Errorf("detail %q", sb.Resumed.Detail)
	}
	runs.continued(before)
	if n := runs.pause(); n.Kind != bothy.SnapshotFiles || !strings.Contains(n.Detail, "engines.refuse") {
		t.Errorf("a pause of a machine of a refused build is %+v", n)
	}
	s.Binary = testserver.Variant(t, "B")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err == nil {
		t.Error("a server started although its own build is refused")
	}
	s.replaceWith(t, "")
}

// resumedWithMemory checks that a sandbox was resumed with its memory.
func (b *box) resumedWithMemory(sb *bothy.Sandbox) {
	b.Helper()
	if sb.Resumed == nil || sb.Resumed.Kind != bothy.SnapshotMemory {
		b.Fatalf("resumed: %+v", sb.Resumed)
	}
}

func (b *box) rollBack(to *bothy.Snapshot) {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	sb, err := b.s.Snapshots.Rollback(ctx, b.id, to.ID)
	if err != nil {
		b.Fatalf("roll back: %v", err)
	}
	b.resumedWithMemory(sb)
}
