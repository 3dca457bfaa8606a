package lifecycle_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/register"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle"
)

// After damage, a database may be empty or restored to an earlier state.
func TestSandboxesTheDatabaseLostAreKept(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.dir, "register")
	w.change = func(o *lifecycle.Options) { o.Register = dir }
	w.restart()
	restored, ended := w.create(bothy.SandboxCreate{Name: "restored"}), w.create(bothy.SandboxCreate{})
	gone := w.create(bothy.SandboxCreate{})
	running := func() int {
		files, _ := filepath.Glob(filepath.Join(dir, "running", "*.json"))
		return len(files)
	}
	eventually(t, "registered", func() bool { return running() == 3 })
	w.closeServer()
	w.host.Machine(gone.ID).End(bothy.Exit{})
	move := func(from, to string) {
		for _, suffix := range []string{".db", "-answers.db"} {
			if err := os.Rename(filepath.Join(w.dir, from+suffix), filepath.Join(w.dir, to+suffix)); err != nil {
				t.Fatal(err)
			}
		}
	}
	move("bothy", "lost")
	w.open()
	if _, err := w.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{restored.ID, ended.ID} {
		if m := w.host.Machine(id); m == nil || !m.Frozen() {
			t.Fatalf("the machine of %s was not kept, or is still running: %v", id, m)
		}
	}
	list, err := register.Unclaimed(dir)
	if err != nil || len(list) != 2 || list[0].ProjectID != "mine" {
		t.Fatalf("the unclaimed sandboxes are %+v, %v", list, err)
	}
	if p := w.Problems(); len(p) != 1 || !strings.Contains(p[0], "lost 2 sandboxes") {
		t.Errorf("problems: %q", p)
	}
	// The operator ends one of them.
	if err := register.EndUnclaimed(dir, ended.ID); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(5 * time.Second)
	if w.host.Machine(ended.ID) != nil || w.host.Machine(restored.ID) == nil {
		t.Errorf("machines: %v", w.host.IDs())
	}
	// The other one is unchanged when the database is restored.
	w.closeServer()
	move("bothy", "empty")
	move("lost", "bothy")
	w.open()
	if _, err := w.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Exec(w.me(), restored.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil || w.host.Machine(restored.ID).Frozen() {
		t.Errorf("with the restored database: %v", err)
	}
	if got := w.get(ended.ID); !got.State.Ended() {
		t.Errorf("the ended sandbox is %s", got.State)
	}
	eventually(t, "nothing kept aside", func() bool { list, err := register.Unclaimed(dir); return err == nil && len(list) == 0 })
	if p := w.Problems(); len(p) != 0 {
		t.Errorf("problems: %q", p)
	}
	if err := w.Terminate(w.me(), restored.ID); err != nil || running() != 0 {
		t.Errorf("machines registered at the end: %d, %v", running(), err)
	}
}

func TestADatabaseInDoubtRemovesNothing(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	for _, doubtful := range []bool{true, false} {
		w.closeServer()
		if doubtful {
			if err := os.Remove(filepath.Join(w.dir, "bothy.db")); err != nil {
				t.Fatal(err)
			}
		}
		w.change = func(o *lifecycle.Options) { o.Doubtful = func() bool { return doubtful } }
		w.open()
		if _, err := w.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lives := w.host.Machine(sb.ID) != nil; lives != doubtful {
			t.Errorf("with a database in doubt: %v; the machine is running: %v", doubtful, lives)
		}
	}
}
