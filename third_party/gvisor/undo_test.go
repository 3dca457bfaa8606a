package gvisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUndoFits finds a patch for each file of undo, and its hunks in the patched copy.
func TestUndoFits(t *testing.T) {
	undo, err := filepath.Glob("undo/*.patch")
	if err != nil || len(undo) == 0 {
		t.Fatal(undo, err)
	}
	tree := "../../bin/gvisor"
	if _, err := os.Stat(tree); err != nil {
		t.Skip("there is no patched copy:", err)
	}
	for _, path := range undo {
		number, _, _ := strings.Cut(filepath.Base(path), "-")
		if of, _ := filepath.Glob("patches/" + number + "-*.patch"); len(of) != 1 {
			t.Errorf("%s undoes a part of the patches %v", path, of)
		}
		if !strings.HasPrefix(read(t, path), "Undoes: ") {
			t.Errorf("%s does not say what it undoes", path)
		}
		if said, err := exec.Command("patch", "--dry-run", "--fuzz=0", "--batch", "--strip=0", "--directory="+tree, "--input="+absolute(t, path)).CombinedOutput(); err != nil {
			t.Errorf("%s does not fit: %s", path, said)
		}
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	whole, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}
