package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// rows is a store of sandboxes, in which a test changes what the ledger has written.
type rows struct {
	Store
	rows   map[string]store.Sandbox
	events []bothy.Event
	fail   error // what the next writes fail with
}

func (r *rows) Sandbox(_ context.Context, id string) (*store.Sandbox, error) {
	sb, ok := r.rows[id]
	if !ok {
		return nil, bothy.NoSandbox(id)
	}
	return &sb, nil
}

func (r *rows) PutSandbox(_ context.Context, sb *store.Sandbox) error {
	if r.fail != nil {
		return r.fail
	}
	if found := r.rows[sb.ID].Version; found != sb.Version {
		return (&store.Conflict{Sandbox: sb.ID, Expected: sb.Version, Found: found}).AsError()
	}
	sb.Version++
	r.rows[sb.ID] = *sb
	return nil
}

func (r *rows) AddEvent(_ context.Context, e *bothy.Event) error {
	r.events = append(r.events, *e)
	return nil
}

// timers is a clock whose time passes when a test says so.
type timers struct{ waiting []func() }

func (c *timers) Now() time.Time { return time.Unix(1e9, 0) }

func (c *timers) AfterFunc(_ time.Duration, f func()) func() bool {
	c.waiting = append(c.waiting, f)
	return func() bool { return true }
}

func (c *timers) pass() {
	due := c.waiting
	c.waiting = nil
	for _, f := range due {
		f()
	}
}

type fixture struct {
	*testing.T
	*Ledger
	rows      *rows
	clock     *timers
	log       strings.Builder
	elsewhere []string
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, rows: &rows{rows: map[string]store.Sandbox{}}, clock: &timers{}}
	f.Ledger = New(Options{
		Store: f.rows, Clock: f.clock, Background: t.Context(), Log: slog.New(slog.NewTextHandler(&f.log, nil)),
		Elsewhere: func(id string) { f.elsewhere = append(f.elsewhere, id) },
	})
	return f
}

// running is a new sandbox that has been stored.
func (f *fixture) running() *store.Sandbox {
	f.Helper()
	sb := &store.Sandbox{Sandbox: bothy.Sandbox{ID: "sbx", ProjectID: "p"}}
	if err := f.Transition(f.Context(), sb, bothy.StateRunning); err != nil {
		f.Fatal(err)
	}
	return sb
}

// change is what something else does to the row.
func (f *fixture) change(how func(*store.Sandbox)) {
	sb := f.rows.rows["sbx"]
	how(&sb)
	f.rows.rows["sbx"] = sb
}

// wantVersions is wantConflict with the versions that the error names.
func (f *fixture) wantVersions(err error, expected, found int64) {
	f.Helper()
	var c *store.Conflict
	if !errors.As(err, &c) || c.Expected != expected || c.Found != found {
		f.Errorf("got %+v, want version %d expected and version %d found", c, expected, found)
	}
}

func (f *fixture) wantConflict(err error) {
	f.Helper()
	if !errors.As(err, new(*store.Conflict)) || bothy.ErrorCode(err) != bothy.CodeConflict {
		f.Errorf("got %v, want a conflict", err)
	}
}

// wantReports checks how often the log and the events have told of conflicts.
func (f *fixture) wantReports(want int) {
	f.Helper()
	events := 0
	for _, e := range f.rows.events {
		if e.Type == bothy.EventSandboxConflict && e.SandboxID == "sbx" && e.ProjectID == "p" && strings.Contains(e.Data["detail"], "version") {
			events++
		}
	}
	if logged := strings.Count(f.log.String(), "changed by something other than this server"); events != want || logged != want {
		f.Errorf("%d events and %d messages tell of conflicts, want %d", events, logged, want)
	}
}

func newer(sb *store.Sandbox) { sb.Version++; sb.Name = "theirs" }

func TestAConflictIsReportedAndTheRowReadAgain(t *testing.T) {
	f := newFixture(t)
	sb := f.running()
	f.change(newer)
	sb.Name = "ours"
	f.wantConflict(f.Put(t.Context(), sb))
	f.wantConflict(f.Transition(t.Context(), sb, bothy.StatePausing))
	if sb.State != bothy.StateRunning {
		t.Errorf("a transition that was refused has made it %s", sb.State)
	}
	f.wantReports(1)
	again, err := f.Sandbox(t.Context(), "sbx")
	if err != nil || again.Name != "theirs" {
		t.Fatalf("%+v %v", again, err)
	}
	if err := f.Transition(t.Context(), again, bothy.StatePausing); err != nil {
		t.Error(err)
	}
	f.change(newer)
	f.wantConflict(f.Put(t.Context(), again))
	f.wantReports(2)
}

// What has happened to a machine is not written over what something else has made of the row.
func TestAFactIsNotStoredOverAnothersChange(t *testing.T) {
	f := newFixture(t)
	sb := f.running()
	f.change(newer)
	late := *sb
	f.ForceTransition(t.Context(), &late, bothy.StatePaused, func() { t.Error("it was stored") })
	f.wantConflict(f.End(t.Context(), sb, bothy.Exit{Reason: bothy.EndError}))
	if rows, _ := f.CountUnsaved(); rows != 0 || f.rows.rows["sbx"].State != bothy.StateRunning {
		t.Errorf("%d rows wait for the store, and the one in it is %+v", rows, f.rows.rows["sbx"])
	}
	f.wantReports(1)
}

// A row that waits for the store is dropped if something else has changed it meanwhile, and stored
// if not.
func TestWhatCouldNotBeStoredIsNotStoredOverAnothersChange(t *testing.T) {
	for _, changed := range []bool{false, true} {
		f := newFixture(t)
		sb := f.running()
		f.rows.fail = bothy.Errorf(bothy.CodeStore, "it is away")
		if err := f.End(t.Context(), sb, bothy.Exit{Reason: bothy.EndError}); err != nil {
			t.Fatal(err)
		}
		f.clock.pass()
		if got, err := f.Sandbox(t.Context(), "sbx"); err != nil || got.State != bothy.StateFailed {
			t.Errorf("%+v %v", got, err)
		}
		f.rows.fail = nil
		want := bothy.StateFailed
		if changed {
			f.change(newer)
			want = bothy.StateRunning
		}
		f.clock.pass()
		f.clock.pass()
		if got, err := f.Sandbox(t.Context(), "sbx"); err != nil || got.State != want {
			t.Errorf("changed %v: %+v %v", changed, got, err)
		}
		if rows, _ := f.CountUnsaved(); rows != 0 {
			t.Errorf("changed %v: %d rows wait for the store", changed, rows)
		}
	}
}

// A store that has lost what this server stored is not written to, although its rows are read
// again, until it has everything once more.
func TestAnOlderStoreIsNotWrittenTo(t *testing.T) {
	f := newFixture(t)
	sb := f.running()
	old := f.rows.rows["sbx"]
	for i := range 3 {
		sb.Name = fmt.Sprint(i)
		if err := f.Put(t.Context(), sb); err != nil {
			t.Fatal(err)
		}
	}
	newest := f.rows.rows["sbx"]
	f.rows.rows["sbx"] = old
	for range 3 {
		again, err := f.Sandbox(t.Context(), "sbx")
		if err != nil || again.Version != 1 {
			t.Fatalf("%+v %v", again, err)
		}
		err = f.Put(t.Context(), again)
		f.wantVersions(err, 4, 1)
		if e := bothy.AsError(err); !strings.Contains(e.Hint, "backup") {
			t.Errorf("it says %q %q", e.Detail, e.Hint)
		}
	}
	if got := f.rows.rows["sbx"].Version; got != 1 {
		t.Errorf("the row has version %d", got)
	}
	f.wantReports(1)
	f.rows.rows["sbx"] = newest
	if err := f.Put(t.Context(), sb); err != nil {
		t.Errorf("with the newest rows: %v", err)
	}
	// What was read before the last write is old itself.
	late := old
	f.wantVersions(f.Put(t.Context(), &late), 1, 5)
	// What another server has taken over may be of any version.
	f.Forget("sbx")
	f.rows.rows["sbx"] = old
	if again, err := f.Sandbox(t.Context(), "sbx"); err != nil || f.Put(t.Context(), again) != nil {
		t.Errorf("%+v %v", again, err)
	}
}

// The end of a sandbox that another host has by now, or may have because this server has lost the store,
// is neither acknowledged nor stored later.
func TestAnEndThatNeverWillBeStoredIsNotAcknowledged(t *testing.T) {
	for what, fail := range map[string]error{
		"another host's":   bothy.Errorf(bothy.CodeMisdirected, "it is another's"),
		"of a lost server": bothy.Errorf(bothy.CodeStore, "this host was given up").Because(store.ErrLost),
	} {
		f := newFixture(t)
		sb := f.running()
		f.rows.fail = fail
		err := f.EndThen(t.Context(), sb, bothy.Exit{Reason: bothy.EndTerminated}, func() { t.Error("it was stored") })
		if !errors.Is(err, fail) {
			t.Errorf("%s: got %v", what, err)
		}
		f.rows.fail = nil
		f.clock.pass()
		if rows, _ := f.CountUnsaved(); rows != 0 || f.rows.rows["sbx"].State != bothy.StateRunning {
			t.Errorf("%s: %d rows wait for the store, and the one in it is %s", what, rows, f.rows.rows["sbx"].State)
		}
	}
}

func TestASandboxOfAnotherHostIsReported(t *testing.T) {
	f := newFixture(t)
	sb := f.running()
	f.rows.fail = bothy.Errorf(bothy.CodeMisdirected, "it is another's")
	if err := f.Put(t.Context(), sb); bothy.ErrorCode(err) != bothy.CodeMisdirected || len(f.elsewhere) != 1 || f.elsewhere[0] != "sbx" {
		t.Errorf("%v %v", err, f.elsewhere)
	}
	f.wantReports(0)
}
