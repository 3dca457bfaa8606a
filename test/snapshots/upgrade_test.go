package snapshots

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// become replaces the server by another build of it; "" is the one under test.
func (s *server) become(t *testing.T, name string) {
	t.Helper()
	s.Binary = ""
	if name != "" {
		s.Binary = variant(t, name)
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

// TestMemoryOutlivesUpgrades pauses under one build, and goes up and down through others.
func TestMemoryOutlivesUpgrades(t *testing.T) {
	t.Parallel()
	variant(t, "B") // before the server's time counts
	variant(t, "C")
	s := stoppedServer(t)
	s.NoPool = true
	s.become(t, "")
	first := s.builds(t)
	if len(first) != 1 {
		t.Fatalf("the first server has kept %v", first)
	}
	b := s.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	before := b.counter()
	named := b.snapshot("by A")
	b.pause()

	s.become(t, "B")
	b.wokenWithMemory(b.resume(b.id))
	b.wentOn(before)
	b.sh("echo under B >/workspace/b")
	before = b.counter()
	later := b.snapshot("under B, by A")
	if later.Kind != bothy.SnapshotMemory {
		t.Errorf("the snapshot of a sandbox of an earlier build is %+v", later)
	}
	copies := b.fork(2)
	for _, c := range copies {
		c.wentOn(before)
	}
	b.turnBack(named)
	if out, err := b.try("cat /workspace/b"); err == nil {
		t.Errorf("after the rollback there is still %q", out)
	}
	b.turnBack(later)
	b.wentOn(before)
	// One of B's own, beside it.
	own := s.newBox(t, bothy.SandboxCreate{})
	own.startCounter()
	ownBefore := own.counter()
	own.pause()
	before = b.counter()

	s.become(t, "C") // which finds b running
	b.wentOn(before)
	before = b.counter()
	if n := b.pause(); n.Kind != bothy.SnapshotMemory {
		t.Errorf("the pause of a sandbox that ran through an upgrade is %+v", n)
	}
	b.wokenWithMemory(b.resume(b.id))
	b.wentOn(before)
	own.wokenWithMemory(own.resume(own.id))
	own.wentOn(ownBefore)
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
	variant(t, "B")
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
	s.Binary = variant(t, "B")
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
