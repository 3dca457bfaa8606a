package server

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy/store"
)

func TestADatabaseBehindItsMarkHasLostSomething(t *testing.T) {
	path := filepath.Join(t.TempDir(), "register", "database")
	m, missing := openMark(path, 7)
	if missing != 0 {
		t.Errorf("at the first start %d are missing", missing)
	}
	if err := m.move(7); err != nil {
		t.Fatal(err)
	}
	for last, want := range map[int64]int64{7: 0, 9: 0, 5: 2, 0: 7} {
		if _, missing := openMark(path, last); missing != want {
			t.Errorf("with %d records of 7, %d are missing", last, missing)
		}
	}
	// What was told of once counts from then on.
	m, _ = openMark(path, 5)
	if err := m.move(5); err != nil {
		t.Fatal(err)
	}
	if _, missing := openMark(path, 5); missing != 0 {
		t.Errorf("after the mark was moved %d are missing", missing)
	}
}

// auditOf is a store of which only the end of the audit matters.
type auditOf struct {
	database
	last int64
}

func (a *auditOf) AuditEnds(context.Context) (store.AuditEnds, error) {
	return store.AuditEnds{LastID: a.last}, nil
}

func TestADatabaseThatLosesRecordsWhileTheServerRunsIsNoticed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "database")
	audit := &auditOf{}
	s := &Server{store: audit, log: slog.New(slog.DiscardHandler)}
	m, _ := openMark(path, 0)
	for _, last := range []int64{5, 9} {
		audit.last = last
		if err := s.moveMark(t.Context(), m); err != nil || s.doubtful() {
			t.Fatalf("with %d records: %v, in doubt: %v", last, err, s.doubtful())
		}
	}
	// An older copy stays in doubt, also after as much has happened again.
	for _, last := range []int64{3, 8, 12} {
		audit.last = last
		if err := s.moveMark(t.Context(), m); err != nil || !s.doubtful() {
			t.Fatalf("with %d records of 9: %v, in doubt: %v", last, err, s.doubtful())
		}
		if last < 9 {
			if _, missing := openMark(path, last); missing != 9-last {
				t.Errorf("with %d records of 9 the next start misses %d", last, missing)
			}
		}
	}
}
