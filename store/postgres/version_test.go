package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// wantConflict checks that a write was refused because the row is not as it was read.
func wantConflict(t *testing.T, err error, expected, found int64) {
	t.Helper()
	var c *store.Conflict
	if !errors.As(err, &c) || c.Expected != expected || c.Found != found || bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("%v, want a conflict: version %d expected, %d found", err, expected, found)
	}
}

// A write whose answer was lost is no conflict: neither for its own repetition, nor for another
// write by a caller that was told that the first had failed.
func TestAWriteOfUnknownOutcomeIsNoConflict(t *testing.T) {
	c := &cutter{}
	s := open(t, c.listen(t, database(t)))
	defer s.Close()
	ctx := t.Context()
	// cut has the answer to the next write lost.
	cut := func() {
		t.Helper()
		if _, err := s.Projects(ctx); err != nil { // a connection that works
			t.Fatal(err)
		}
		c.armed.Store(true)
	}
	is := func(sb *store.Sandbox, version int64) {
		t.Helper()
		row, err := s.Sandbox(ctx, sb.ID)
		if err != nil || row.Name != sb.Name || row.Version != version || sb.Version != version {
			t.Fatalf("the row is version %d of %q, the writer has version %d of %q, want version %d; %v", row.Version, row.Name, sb.Version, sb.Name, version, err)
		}
	}
	// failed is a write that the caller takes for failed, although it was made.
	failed := func(sb *store.Sandbox) {
		t.Helper()
		leaving, leave := context.WithCancel(ctx)
		then := func() { leave() }
		version := sb.Version
		cut()
		c.then.Store(&then)
		if err := s.PutSandbox(leaving, sb); err == nil || errors.As(err, new(*store.Conflict)) || sb.Version != version {
			t.Fatalf("version %d, %v", sb.Version, err)
		}
	}

	sb := sandbox("sbx1", bothy.StateStarting)
	cut()
	must(t, s.PutSandbox(ctx, sb))
	is(sb, 1)
	sb.Name = "repeated by the store"
	cut()
	must(t, s.PutSandbox(ctx, sb))
	is(sb, 2)

	sb.Name = "repeated by the caller"
	failed(sb)
	must(t, s.PutSandbox(ctx, sb))
	is(sb, 3)

	sb.Name = "taken for failed"
	failed(sb)
	sb.Name = "what came after"
	must(t, s.PutSandbox(ctx, sb))
	is(sb, 5)

	sb.Name = "taken for failed, too"
	failed(sb)
	sb.Name = "and what came after is cut off"
	cut()
	must(t, s.PutSandbox(ctx, sb))
	is(sb, 7)

	added := sandbox("sbx2", bothy.StateRunning)
	failed(added)
	added.State = bothy.StateFailed
	must(t, s.PutSandbox(ctx, added))
	is(added, 2)

	// Another's write is a conflict even so.
	sb.Name = "taken for failed, and replaced"
	failed(sb)
	row, err := s.Sandbox(ctx, "sbx1")
	must(t, err)
	row.Name = "by another"
	must(t, s.PutSandbox(ctx, row))
	wantConflict(t, s.PutSandbox(ctx, sb), 7, 9)
	is(row, 9)
}

// A sandbox that moved away and came back is not overwritten by what its host read before.
func TestAMovedSandboxIsNotOverwritten(t *testing.T) {
	url, ctx := database(t), t.Context()
	one, two := member(t, url, "one"), member(t, url, "two")
	defer one.Close()
	defer two.Close()
	sb := sandbox("sbx1", bothy.StatePausing)
	sb.Moving = "there"
	must(t, one.PutSandbox(ctx, sb))
	stale := *sb
	if ok, err := two.TakeSandbox(ctx, "one", one.Epoch(), sb); !ok || err != nil {
		t.Fatal(ok, err)
	}
	late := stale
	if err := one.PutSandbox(ctx, &late); bothy.ErrorCode(err) != bothy.CodeMisdirected {
		t.Errorf("the old owner's write: %v", err)
	}
	sb.Moving = "back"
	must(t, two.PutSandbox(ctx, sb))
	if ok, err := one.TakeSandbox(ctx, "two", two.Epoch(), sb); !ok || err != nil {
		t.Fatal(ok, err)
	}
	late = stale
	late.Name = "late"
	wantConflict(t, one.PutSandbox(ctx, &late), 1, 4)
	wantConflict(t, one.StartSandbox(ctx, &late, store.StartBounds{Sandboxes: new(10)}), 1, 4)
	wantConflict(t, one.ReleaseSandbox(ctx, &late), 1, 4)
	if row, err := one.Sandbox(ctx, "sbx1"); err != nil || row.Name != "" || row.Version != 4 {
		t.Errorf("%+v %v", row, err)
	}
	if o, err := one.SandboxHost(ctx, "sbx1"); err != nil || o.Host != "one" {
		t.Errorf("%+v %v", o, err)
	}
}

// Whatever changes a sandbox whose owner is gone has a new version.
func TestEveryChangeOfOwnerIsANewVersion(t *testing.T) {
	url, ctx := database(t), t.Context()
	dead, two := crashed(t, url, "dead"), member(t, url, "two")
	defer two.Close()
	must(t, dead.PutSandbox(ctx, sandbox("sbx1", bothy.StatePaused)))
	must(t, dead.PutSandbox(ctx, sandbox("sbxk", bothy.StatePaused)))
	is := func(when, id string, want int64) *store.Sandbox {
		t.Helper()
		row, err := two.Sandbox(ctx, id)
		if err != nil || row.Version != want {
			t.Fatalf("%s it has version %d, want %d; %v", when, row.Version, want, err)
		}
		return row
	}
	if done, err := two.GiveUpHosts(ctx, 0, func(sb *store.Sandbox, _ string, _ func(string) *bothy.Snapshot) (bool, bothy.Event) {
		return sb.ID == "sbx1", bothy.Event{}
	}); err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
	before := is("given up", "sbx1", 2)
	if ok, err := two.ClaimSandbox(ctx, "sbx1"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	wantConflict(t, two.PutSandbox(ctx, before), 2, 3)
	sb := is("claimed", "sbx1", 3)
	must(t, two.ReleaseSandbox(ctx, sb))
	is("released", "sbx1", 4)
	if sb.Version != 4 {
		t.Errorf("who released it has version %d", sb.Version)
	}
	is("given up", "sbxk", 2)
	if ok, err := two.ClaimDead(ctx, "sbxk"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	must(t, two.PutSandbox(ctx, is("claimed to end it", "sbxk", 3)))
	dead.Close()
}

// A row from an old backup is not overwritten by a server that has written newer ones.
func TestARowFromABackupIsNotOverwritten(t *testing.T) {
	url, ctx := database(t), t.Context()
	s := open(t, url)
	defer s.Close()
	sb := sandbox("sbx1", bothy.StateRunning)
	must(t, s.PutSandbox(ctx, sb))
	pg.Exec(t, url, `CREATE TABLE backup AS SELECT * FROM sandboxes`)
	for range 3 {
		must(t, s.PutSandbox(ctx, sb))
	}
	pg.Exec(t, url, `DELETE FROM sandboxes; INSERT INTO sandboxes SELECT * FROM backup`)
	sb.Name = "late"
	wantConflict(t, s.PutSandbox(ctx, sb), 4, 1)
	pg.Exec(t, url, `DELETE FROM sandboxes`)
	wantConflict(t, s.PutSandbox(ctx, sb), 4, 0)
}
