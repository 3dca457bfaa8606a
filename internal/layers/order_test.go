package layers

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestLifecycleReadsDownwards keeps the files of lifecycle in an order in which verbs come before their
// parts. -v prints the references that run backwards.
func TestLifecycleReadsDownwards(t *testing.T) {
	uses, backwards, err := Backwards("../../lifecycle", "Service")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d uses between files run backwards: %q", len(backwards), uses, backwards)
	if uses < 100 {
		t.Errorf("only %d uses were found", uses)
	}
	if len(backwards) >= 10 {
		t.Errorf("%d uses between files run backwards, and fewer than 10 may: move what is used into the file that stands lower: %q", len(backwards), backwards)
	}
}

func TestBackwardsFindsCircles(t *testing.T) {
	dir := t.TempDir()
	for name, src := range map[string]string{
		"service.go":  "package x\ntype Service struct{ low int }\nfunc (s *Service) top() { s.middle(); Low() }\n",
		"middle.go":   "package x\nfunc (s *Service) middle() { Low(); _ = Service{low: 1}; other.top() }\n",
		"low.go":      "package x\nfunc Low() { s.middle() }\nvar s *Service\n",
		"low_test.go": "package x\nfunc test() { s.top() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	uses, backwards, err := Backwards(dir, "Service")
	if err != nil || uses != 4 || len(backwards) != 1 {
		t.Errorf("%d uses, of which %q run backwards, %v", uses, backwards, err)
	}
	if want := []string{"low.go → middle.go (middle)", "middle.go → low.go (Low)"}; len(backwards) == 1 && !slices.Contains(want, backwards[0]) {
		t.Errorf("%q is none of the circle %q", backwards[0], want)
	}
}
