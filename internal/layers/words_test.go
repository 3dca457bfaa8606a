package layers

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestAbolishedWordsStayAway fails if a replaced name is used again.
func TestAbolishedWordsStayAway(t *testing.T) {
	seen := 0
	for _, folder := range abolishedIn {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			seen++
			wrong, err := Words(path, nil)
			for _, w := range wrong {
				t.Error(w)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 150 {
		t.Errorf("only %d files were looked at", seen)
	}
}

func TestAbolishedWordsAreFound(t *testing.T) {
	const src = `package x
type shape struct{ laps int }
var letIn = 1
func (shape) handOut(ticket int) { shapeless := 1; _ = shapeless }
`
	wrong, err := Words("x.go", src)
	if err != nil || len(wrong) != 5 {
		t.Errorf("%v: %q", err, wrong)
	}
}
