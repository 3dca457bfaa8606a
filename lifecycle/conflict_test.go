package lifecycle_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/store"
)

// rivalStore is a store that another server writes to as well.
type rivalStore struct {
	store.Store
	// rival, if not nil, is what the other does to a sandbox before this server's next write.
	rival *atomic.Pointer[func(*store.Sandbox)]
	// owned says that another host owns all sandboxes.
	owned *atomic.Bool
	// away says that the store cannot be reached.
	away *atomic.Bool
}

func (s rivalStore) PutSandbox(ctx context.Context, sb *store.Sandbox) error {
	if s.away.Load() {
		return bothy.Errorf(bothy.CodeStore, "the store cannot be reached")
	}
	if s.owned.Load() {
		return bothy.Errorf(bothy.CodeMisdirected, "another host owns it")
	}
	if change := s.rival.Swap(nil); change != nil {
		row, err := s.Store.Sandbox(ctx, sb.ID)
		if err != nil {
			return err
		}
		(*change)(row)
		if err := s.Store.PutSandbox(ctx, row); err != nil {
			return err
		}
	}
	return s.Store.PutSandbox(ctx, sb)
}

type rivalWorld struct {
	*world
	store rivalStore
}

func newRivalWorld(t *testing.T) *rivalWorld {
	w := &rivalWorld{newWorld(t), rivalStore{rival: &atomic.Pointer[func(*store.Sandbox)]{}, owned: &atomic.Bool{}, away: &atomic.Bool{}}}
	w.change = func(o *lifecycle.Options) {
		w.store.Store = o.Store
		o.Store = w.store
	}
	w.restart()
	return w
}

// meanwhile has the other server change the sandbox that this one changes next.
func (w *rivalWorld) meanwhile(change func(*store.Sandbox)) { w.store.rival.Store(&change) }

// conflicts counts the events of conflicts.
func (w *rivalWorld) conflicts(id string) (n int) {
	w.t.Helper()
	err := w.Events(w.me(), bothy.EventFilter{SandboxID: id}, func(e bothy.Event) error {
		if e.Type == bothy.EventSandboxConflict {
			n++
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func TestAChangeIsNotStoredOverAnothers(t *testing.T) {
	w := newRivalWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	w.meanwhile(func(row *store.Sandbox) { row.Name = "theirs" })
	update := bothy.SandboxUpdate{Metadata: map[string]string{"k": "ours"}}
	_, err := w.Update(w.me(), sb.ID, update)
	wantCode(t, err, bothy.CodeConflict)
	if got := w.row(sb.ID); got.Name != "theirs" || len(got.Metadata) != 0 {
		t.Errorf("the row is %+v", got)
	}
	if n := w.conflicts(sb.ID); n != 1 {
		t.Errorf("%d events tell of the conflict", n)
	}
	if w.host.Machine(sb.ID) == nil {
		t.Error("its machine has ended")
	}
	got, err := w.Update(w.me(), sb.ID, update)
	if err != nil || got.Name != "theirs" || got.Metadata["k"] != "ours" {
		t.Errorf("the next change makes it %+v, %v", got, err)
	}
	// A pause that is refused leaves the sandbox as it is.
	w.meanwhile(func(row *store.Sandbox) { row.Name = "theirs again" })
	_, err = w.Pause(w.me(), sb.ID, bothy.PauseOptions{})
	wantCode(t, err, bothy.CodeConflict)
	if got := w.get(sb.ID); got.State != bothy.StateRunning || got.Name != "theirs again" {
		t.Errorf("it is %s, named %q", got.State, got.Name)
	}
	if _, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
		t.Error(err)
	}
}

// The end of a machine is stored in the row as it is then, if the row still is of a sandbox that
// runs.
func TestADeathIsNotStoredOverAnothersChange(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*store.Sandbox)
		want   bothy.State
	}{
		"named":  {func(row *store.Sandbox) { row.Name = "theirs" }, bothy.StateFailed},
		"paused": {func(row *store.Sandbox) { row.Name, row.State = "theirs", bothy.StatePaused }, bothy.StatePaused},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRivalWorld(t)
			sb := w.create(bothy.SandboxCreate{})
			w.meanwhile(c.change)
			w.host.Machine(sb.ID).End(bothy.Exit{Reason: bothy.EndError, Detail: "it was killed"})
			eventually(t, "the conflict is reported", func() bool { return w.conflicts(sb.ID) == 1 })
			eventually(t, "the end is recorded", func() bool {
				w.clock.pass(time.Minute)
				return w.row(sb.ID).State == c.want && w.WaitingFor(sb.ID) == 0
			})
			if got := w.row(sb.ID); got.Name != "theirs" {
				t.Errorf("the row is %+v", got)
			}
		})
	}
}

// A database that was restored from a backup below the server is not written to, and nothing
// ends; with the newest one the server continues.
func TestARestoredDatabaseIsNotWrittenTo(t *testing.T) {
	w := newRivalWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(60)})
	name := func(n string) error {
		_, err := w.Update(w.me(), sb.ID, bothy.SandboxUpdate{Name: &n})
		return err
	}
	for range 3 {
		if err := name("before"); err != nil {
			t.Fatal(err)
		}
	}
	version := w.row(sb.ID).Version
	db, err := sql.Open("sqlite", filepath.Join(w.dir, "bothy.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	restore := func(v int64) {
		t.Helper()
		if _, err := db.Exec(`PRAGMA busy_timeout = 10000; UPDATE sandboxes SET version = ? WHERE id = ?`, v, sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	restore(version - 2)
	for range 2 {
		err := name("after")
		wantCode(t, err, bothy.CodeConflict)
		if e := bothy.AsError(err); !strings.Contains(e.Detail, "older") || !strings.Contains(e.Hint, "backup") {
			t.Errorf("it says %q %q", e.Detail, e.Hint)
		}
	}
	if got := w.row(sb.ID); got.Name != "before" || got.Version != version-2 {
		t.Errorf("the row is version %d of %q", got.Version, got.Name)
	}
	if n := w.conflicts(sb.ID); n != 1 || w.host.Machine(sb.ID) == nil {
		t.Errorf("%d events tell of it, and its machine is %v", n, w.host.Machine(sb.ID))
	}
	restore(version)
	if err := name("after"); err != nil {
		t.Errorf("with the newest database: %v", err)
	}
	// A server that starts takes the database as it is.
	restore(1)
	w.restart()
	if err := name("restarted"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

// The machine of a sandbox that another host owns ends as it does when the host is given up:
// nothing is stored of it.
func TestAMachineOfAnotherHostsSandboxEnds(t *testing.T) {
	w := newRivalWorld(t)
	sb, other := w.create(bothy.SandboxCreate{}), w.create(bothy.SandboxCreate{})
	before := w.row(sb.ID)
	w.store.owned.Store(true)
	name := "x"
	_, err := w.Update(w.me(), sb.ID, bothy.SandboxUpdate{Name: &name})
	wantCode(t, err, bothy.CodeMisdirected)
	eventually(t, "its machine ends", func() bool { return w.host.Machine(sb.ID) == nil && !w.Here(sb.ID) })
	if got := w.row(sb.ID); got.State != bothy.StateRunning || got.Version != before.Version {
		t.Errorf("the row is version %d, %s", got.Version, got.State)
	}
	if !w.Here(other.ID) || w.host.Machine(other.ID) == nil {
		t.Error("another sandbox has ended too")
	}
}

// A delete is not acknowledged if another host has the sandbox, or if a host of a cluster could not store
// it: the others might resume the sandbox. Alone, a server stores it later.
func TestADeleteThatIsNotStoredIsNotAcknowledged(t *testing.T) {
	w := newRivalWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	w.store.owned.Store(true)
	wantCode(t, w.Terminate(w.me(), sb.ID), bothy.CodeMisdirected)
	w.store.owned.Store(false)
	for _, shared := range []bool{false, true} {
		change := w.change
		w.change = func(o *lifecycle.Options) {
			change(o)
			if shared {
				asShared(o)
			}
		}
		w.restart()
		w.change = change
		sb := w.create(bothy.SandboxCreate{})
		w.store.away.Store(true)
		err := w.Terminate(w.me(), sb.ID)
		if shared {
			wantCode(t, err, bothy.CodeStore)
			if bothy.AsError(err).RetryAfter == 0 {
				t.Errorf("it says %v", err)
			}
			wantCode(t, w.Terminate(w.me(), sb.ID), bothy.CodeStore)
		} else if err != nil {
			t.Errorf("alone: %v", err)
		}
		w.store.away.Store(false)
		w.clock.pass(time.Minute)
		eventually(t, "the end is stored", func() bool { return w.row(sb.ID).State == bothy.StateStopped })
		if err := w.Terminate(w.me(), sb.ID); err != nil {
			t.Errorf("again: %v", err)
		}
	}
}

// What a sandbox did on a host that was given up meanwhile is not acknowledged.
func TestAHostThatWasGivenUpAnswersNothing(t *testing.T) {
	w := newWorld(t)
	var gone atomic.Bool
	w.change = func(o *lifecycle.Options) {
		asShared(o)
		o.Cluster = awaited{o.Cluster, func() error {
			if gone.Load() {
				return errors.New("given up")
			}
			return nil
		}}
	}
	w.restart()
	sb := w.create(bothy.SandboxCreate{})
	if _, err := w.Exec(w.me(), sb.ID, pwd); err != nil {
		t.Fatal(err)
	}
	gone.Store(true)
	ctx, once := w.once("k")
	_, err := w.Exec(ctx, sb.ID, pwd)
	wantCode(t, err, bothy.CodeStore)
	if !once.HasBegun() || bothy.AsError(err).RetryAfter == 0 {
		t.Errorf("it has begun: %v, %v", once.HasBegun(), err)
	}
	told := 0
	err = w.ExecStream(w.me(), sb.ID, pwd, func(bothy.ExecEvent) error { told++; return nil })
	wantCode(t, err, bothy.CodeStore)
	if told != 0 {
		t.Errorf("%d events were passed on", told)
	}
}
