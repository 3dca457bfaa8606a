package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// A server whose records went to a database does not begin anew with empty files.
func TestMigratedRecordsAreMissed(t *testing.T) {
	files := filepath.Join(t.TempDir(), "bothy.db")
	if err := checkNotMigrated(files); err != nil {
		t.Errorf("a new server: %v", err)
	}
	for _, name := range []string{files + moved + "20260101T000000", files + moved + "20260102T000000"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var refused *bothy.Error
	err := checkNotMigrated(files)
	if refused, _ = err.(*bothy.Error); refused == nil || !strings.Contains(refused.Hint, "20260102T000000") {
		t.Errorf("after a migration: %v", err)
	}
	if err := os.WriteFile(files, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkNotMigrated(files); err != nil {
		t.Errorf("after a migration back: %v", err)
	}
}
