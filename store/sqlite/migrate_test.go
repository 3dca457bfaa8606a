package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// A database from before sizes had a column of their own gets them from its records.
func TestSizesOfEarlierSnapshotsAreAddedUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for id, size := range map[string]int64{"a": 5, "b": 1 << 40, "c": 0} {
		n := &bothy.Snapshot{ID: id, ProjectID: "p", SizeBytes: size, CreatedAt: time.Unix(1, 0)}
		if err := s.PutSnapshot(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := connect(path, "FULL", 1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := migrations.ReadFile("migrations/00010_snapshot_sizes.sql")
	if err != nil {
		t.Fatal(err)
	}
	up, down, _ := strings.Cut(string(text), "-- +goose Down")
	if _, err := db.ExecContext(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "SELECT bytes FROM snapshots"); err == nil {
		t.Fatal("the column is still there")
	}
	if _, err := db.ExecContext(t.Context(), up); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if count, bytes, err := s.SnapshotSum(t.Context(), "p"); err != nil || count != 3 || bytes != 5+1<<40 {
		t.Errorf("%d snapshots of %d bytes, %v", count, bytes, err)
	}
}
