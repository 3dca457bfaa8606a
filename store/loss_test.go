package store_test

import (
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Where a snapshot of a run is deleted, what the run began with is the last, and no other.
func TestTheLastSnapshotIsNotTheDeletedOne(t *testing.T) {
	all := map[string]*bothy.Snapshot{
		"asleep":  {ID: "asleep", SandboxID: "sbx"},
		"live":    {ID: "live", SandboxID: "sbx", ParentID: "asleep"},
		"later":   {ID: "later", SandboxID: "sbx", ParentID: "deleted"},
		"another": {ID: "another", SandboxID: "other"},
	}
	any := func(id string) *bothy.Snapshot { return all[id] }
	left := func(id string) *bothy.Snapshot {
		if id == "later" {
			return nil
		}
		return all[id]
	}
	for _, c := range []struct{ head, woken, want string }{
		{"live", "asleep", "live"},
		{"deleted", "asleep", "asleep"},
		{"later", "asleep", "asleep"},
		{"deleted", "live", "live"}, // it was rolled back to that
		{"deleted", "deleted", ""},
		{"deleted", "another", ""},
		{"deleted", "", ""},
	} {
		sb := &store.Sandbox{Sandbox: bothy.Sandbox{ID: "sbx", SnapshotID: "asleep"}, HeadSnapshotID: c.head}
		if c.woken != "" {
			sb.Resumed = &bothy.Resumed{SnapshotID: c.woken}
		}
		got := ""
		if n := sb.LastSnapshot(any, left); n != nil {
			got = n.ID
		}
		if got != c.want {
			t.Errorf("of one that woke from %q and had %q last it is %q, and not %q", c.woken, c.head, got, c.want)
		}
	}
}

// What its owner took is told from what a pause or the server made.
func TestASandboxThatIsPausedAfterALossKnowsWhatItsOwnerTook(t *testing.T) {
	for _, c := range []struct {
		n    bothy.Snapshot
		want string
	}{
		{bothy.Snapshot{ID: "own"}, "own"},
		{bothy.Snapshot{ID: "checkpoint", Checkpoint: true}, ""},
		{bothy.Snapshot{ID: "asleep"}, ""},
		{bothy.Snapshot{ID: "before"}, ""},
	} {
		sb := &store.Sandbox{Sandbox: bothy.Sandbox{SnapshotID: "asleep", EarlierSnapshotID: "before"}}
		sb.PauseAfterLoss("host", &c.n, time.Now())
		if sb.OwnSnapshotID != c.want || sb.SnapshotID != c.n.ID {
			t.Errorf("paused at %q it has %q, and not %q", c.n.ID, sb.OwnSnapshotID, c.want)
		}
	}
}
