package sqlite_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
)

// TestAFullDiskIsSaid has the database be as large as it may be, which SQLite tells
// of as it does of a full disk.
func TestAFullDiskIsSaid(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "b.db"))
	defer s.Close()
	if err := sqlite.Bound(s, 1); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 1<<20)
	for what, do := range map[string]func() error{
		"sandbox": func() error {
			return s.PutSandbox(t.Context(), &store.Sandbox{Sandbox: bothy.Sandbox{ID: "sbx", Name: long}})
		},
		"paused": func() error {
			return s.PutSandbox(t.Context(), &store.Sandbox{Sandbox: bothy.Sandbox{ID: "sbx", Name: long, State: bothy.StatePaused}})
		},
		"token":    func() error { return s.PutToken(t.Context(), &store.Token{Token: bothy.Token{ID: "t", Name: long}}) },
		"snapshot": func() error { return s.PutSnapshot(t.Context(), &bothy.Snapshot{ID: "snp", Name: long}) },
		"event": func() error {
			return s.AddEvent(t.Context(), &bothy.Event{Time: time.Now(), Data: map[string]string{"x": long}})
		},
		"audit":  func() error { return s.AppendAudit(t.Context(), []store.AuditLine{{ID: 1, Record: long}}) },
		"budget": func() error { return s.PutBudget(t.Context(), store.Budget{ID: long, Kind: "tree", Amount: 1}) },
	} {
		err := do()
		if bothy.ErrorCode(err) != bothy.CodeDiskFull || bothy.AsError(err).Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A power cut must not take from a row what it knows of checkpoints, nor what a sandbox sleeps in.
func TestTheRowsOfCheckpointsAreSynced(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "b.db"))
	defer s.Close()
	if err := sqlite.SyncedOnly(s); err != nil {
		t.Fatal(err)
	}
	sb := &store.Sandbox{Sandbox: bothy.Sandbox{ID: "sbx"}}
	for _, c := range []struct {
		state       bothy.State
		checkpoints []string
		synced      bool
	}{
		{bothy.StateRunning, nil, false},
		{bothy.StateRunning, []string{"snp"}, true},
		{bothy.StatePaused, nil, true},
	} {
		sb.State, sb.Checkpoints = c.state, c.checkpoints
		err := s.PutSandbox(t.Context(), sb)
		if (err == nil) != c.synced {
			t.Errorf("%s with %v: %v", c.state, c.checkpoints, err)
		}
	}
}

func TestADatabaseOfANewerServerIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.db")
	open(t, path).Close()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) SELECT max(version_id) + 1, 1 FROM goose_db_version`); err != nil {
		t.Fatal(err)
	}
	db.Close()
	s, err := sqlite.Open(t.Context(), path)
	if err == nil {
		s.Close()
		t.Fatal("it was opened")
	}
	if e := bothy.AsError(err); e.Code != bothy.CodeUnsupported || !strings.Contains(e.Detail, "newer server") || !strings.Contains(e.Hint, "backup") {
		t.Errorf("it says %v", err)
	}
}

// TestSmallBlocksNeedRoom refuses the disks on which opening the database would end the
// process.
func TestSmallBlocksNeedRoom(t *testing.T) {
	for name, c := range map[string]struct {
		block int64
		free  uint64
		fails error
		full  bool
	}{
		"full, small blocks":     {block: 1024, free: 3, full: true},
		"room, small blocks":     {block: 1024, free: 1024},
		"full, blocks of a page": {block: 4096, free: 0},
		"cannot be asked":        {block: 1024, fails: unix.EACCES},
	} {
		err := sqlite.RoomToMap("/state", func(_ string, disk *unix.Statfs_t) error {
			disk.Bsize, disk.Bavail = c.block, c.free
			return c.fails
		})
		if full := bothy.ErrorCode(err) == bothy.CodeDiskFull; full != c.full || full != (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRightsEndOnAFullDisk fills the disk of a database, to the last byte that its log may grow
// by, and then revokes, deletes and ends.
func TestRightsEndOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("a small disk needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := open(t, filepath.Join(dir, "b.db"))
	defer s.Close()
	ctx := t.Context()
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	sb := &store.Sandbox{Sandbox: bothy.Sandbox{ID: "sbx", ProjectID: "p", State: bothy.StateRunning}}
	do("put sandbox", s.PutSandbox(ctx, sb))
	do("put token", s.PutToken(ctx, &store.Token{Token: bothy.Token{ID: "tok", ProjectID: "p"}, Hash: "h"}))
	do("put snapshot", s.PutSnapshot(ctx, &bothy.Snapshot{ID: "snp", ProjectID: "p"}))
	do("put webhook", s.PutWebhook(ctx, &store.Webhook{Webhook: bothy.Webhook{ID: "whk", ProjectID: "p"}}))
	do("put agents", s.PutAgents(ctx, &store.AgentAttachment{AgentAttachment: bothy.AgentAttachment{ID: "agt", ProjectID: "p"}}))
	do("add login", s.AddLogin(ctx, &store.Login{Hash: "l", ProjectID: "p", TokenID: "tok", ExpiresAt: time.Now().Add(time.Hour)}, store.LoginBounds{PerToken: 1, All: 1}))
	do("add link", s.AddLink(ctx, &bothy.Link{ID: "lnk", ProjectID: "p", SandboxID: "sbx", TokenID: "tok", ExpiresAt: time.Now().Add(time.Hour)}, store.LinkBounds{}))

	var err error
	long := strings.Repeat("x", 1<<16)
	for i := 0; err == nil && i < 1000; i++ { // the log has no room either
		err = s.AddEvent(ctx, &bothy.Event{Time: time.Now(), Data: map[string]string{"x": long}})
	}
	fill(t, dir)
	for i := 0; bothy.ErrorCode(err) == "" && i < 1000; i++ {
		err = s.AddEvent(ctx, &bothy.Event{Time: time.Now(), Data: map[string]string{"x": long}})
	}
	if bothy.ErrorCode(err) != bothy.CodeDiskFull {
		t.Fatalf("the disk does not become full: %v", err)
	}
	do("delete link", s.DeleteLink(ctx, "sbx", "lnk"))
	do("delete login", s.DeleteLogin(ctx, "l"))
	do("delete token", s.DeleteToken(ctx, "p", "tok"))
	do("delete snapshot", s.DeleteSnapshot(ctx, "snp"))
	do("delete webhook", s.DeleteWebhook(ctx, "p", "whk"))
	do("delete agents", s.DeleteAgents(ctx, "p", "agt"))
	sb.State = bothy.StateStopped
	do("end sandbox", s.PutSandbox(ctx, sb))
	if _, err := s.TokenByHash(ctx, "h"); bothy.ErrorCode(err) != bothy.CodeNotFound {
		t.Errorf("the key still exists: %v", err)
	}
	// It needs more than what a step of the reserve may have left to others.
	if err := s.AddEvent(ctx, &bothy.Event{Time: time.Now(), Data: map[string]string{"x": strings.Repeat(long, 4)}}); bothy.ErrorCode(err) != bothy.CodeDiskFull {
		t.Errorf("an ordinary change has taken from the reserve: %v", err)
	}
}

// fill takes all space that a disk has.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
}
