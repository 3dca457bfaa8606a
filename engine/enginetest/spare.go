package enginetest

import (
	"context"
	"os"
	"testing"

	"github.com/bothy-dev/bothy"
)

// preparer is the engine, if it can prepare.
func (s *suite) preparer(t *testing.T) bothy.Preparer {
	t.Helper()
	p, ok := s.e.(bothy.Preparer)
	if !ok {
		t.Skip("the engine prepares nothing")
	}
	t.Cleanup(func() { p.KeepSpares(context.Background(), nil) })
	return p
}

func prepare(t *testing.T, p bothy.Preparer, spec bothy.MachineSpec, n int) {
	t.Helper()
	for range n {
		if err := p.Prepare(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
}

func countSpares(p bothy.Preparer) (n int) {
	for _, x := range p.Spares() {
		n += x.Count
	}
	return n
}

func spareStarts(t *testing.T, s *suite) {
	p := s.preparer(t)
	prepare(t, p, s.spec(""), 2)
	other := s.spec("other")
	other.Limits.MemoryMB *= 2
	o, err := s.begin(func() (bothy.Machine, error) { return s.e.Start(t.Context(), other) })
	if err != nil {
		t.Fatal(err)
	}
	s.answers(t, plug(t, o))
	if n := countSpares(p); n != 2 {
		t.Errorf("after a start of another kind there are %d spares instead of 2", n)
	}
	m := s.start(t, "a")
	if n := countSpares(p); n != 1 {
		t.Errorf("after a start of their kind there are %d spares instead of 1", n)
	}
	if m.ID() != "a" {
		t.Errorf("a machine made from a spare has the id %q", m.ID())
	}
	s.answers(t, plug(t, m))
	if _, err := s.e.Start(t.Context(), s.spec("a")); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("a second machine with the same id: %v", err)
	}
	if n := countSpares(p); n != 1 {
		t.Errorf("a start that was refused took a spare: %d are left", n)
	}
	if ids, err := s.e.Sweep(t.Context(), func(string) bool { return false }); err != nil || len(ids) > 0 {
		t.Errorf("an engine swept %v of its own, %v", ids, err)
	}
	destroy(t, m)
	destroy(t, s.start(t, "a")) // the id is free again
}

func spareRestores(t *testing.T, s *suite) {
	p := s.preparer(t)
	dir := s.snapshots(t)
	m := s.start(t, "a")
	s.answers(t, plug(t, m))
	if err := m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: dir}); err != nil {
		t.Fatal(err)
	}
	prepare(t, p, s.spec(""), 1)
	c, err := s.begin(func() (bothy.Machine, error) { return s.e.Restore(t.Context(), s.spec("copy"), dir) })
	if err != nil {
		t.Fatal(err)
	}
	if n := countSpares(p); n != 0 {
		t.Errorf("a restore left %d spares", n)
	}
	s.answers(t, plug(t, c))
	// It can be saved like any other machine.
	again := dir + "-again"
	if err := os.Mkdir(again, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: again, Stop: true}); err != nil {
		t.Error(err)
	}
}

func spareAdopted(t *testing.T, s *suite) {
	p := s.preparer(t)
	prepare(t, p, s.spec(""), 2)
	m := s.start(t, "a")
	state := m.State()
	plug(t, m).Close()
	// The next server adopts the machine; the other spare has no owner.
	next := s.engine(t)
	kept, err := next.Adopt(t.Context(), "a", state)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := next.Sweep(t.Context(), func(id string) bool { return id == "a" })
	if err != nil || len(ids) != 1 {
		t.Errorf("swept %v, %v", ids, err)
	}
	s.answers(t, plug(t, kept))
}

func sparesGivenUp(t *testing.T, s *suite) {
	p := s.preparer(t)
	prepare(t, p, s.spec(""), 2)
	if err := p.KeepSpares(t.Context(), []bothy.Spare{{Kind: s.spec("x").Kind(), Count: 1}}); err != nil || countSpares(p) != 1 {
		t.Errorf("one was to be kept, and there are %d: %v", countSpares(p), err)
	}
	if err := p.KeepSpares(t.Context(), nil); err != nil || countSpares(p) != 0 {
		t.Errorf("none was to be kept, and there are %d: %v", countSpares(p), err)
	}
	s.nothingLeft(t)
	spec := s.spec("")
	spec.RootFS = s.dir + "/none"
	if err := p.Prepare(t.Context(), spec); bothy.ErrorCode(err) != bothy.CodeTemplateInvalid {
		t.Errorf("a spare without an image: %v", err)
	}
	s.nothingLeft(t)
}
