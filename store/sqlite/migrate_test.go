package sqlite

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
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

// Usage from before months were summed up is in every report.
func TestEarlierUsageIsSummedUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	first := time.Date(2025, 12, 30, 5, 0, 0, 0, time.UTC).Unix() / 3600
	batch := store.UsageBatch{ID: "1"}
	for hour := range int64(70 * 24) {
		for _, project := range []string{"p", "q"} {
			batch.Rows = append(batch.Rows, store.UsageRow{UsageKey: store.UsageKey{Project: project, Template: "t", Sandbox: "s"}, Hour: first + hour, Counts: store.Counts{1, hour}})
		}
	}
	if err := s.WriteUsage(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	ask := func() (all [][]store.UsageGroup) {
		for _, q := range []store.UsageQuery{{}, {Project: true}, {Day: true}, {Sandbox: true, Project: true}, {Template: true, In: store.UsageKey{Project: "q"}}} {
			q.From, q.To = first+1, first+69*24
			list, err := s.QueryUsage(t.Context(), q)
			if err != nil || len(list) == 0 {
				t.Fatal(list, err)
			}
			all = append(all, list)
		}
		return all
	}
	want := ask()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := connect(path, "FULL", 1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := migrations.ReadFile("migrations/00021_usage_rollups.sql")
	if err != nil {
		t.Fatal(err)
	}
	up, down, _ := strings.Cut(string(text), "-- +goose Down")
	for _, text := range []string{down, "SELECT * FROM usage_packs", up} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := ask(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
