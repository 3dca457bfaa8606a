package server

import (
	"path/filepath"
	"testing"
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
