package template

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// A folder of templates belongs to one server until that ends. Who wants it as well is told who has it.
func TestAFolderBelongsToOneServer(t *testing.T) {
	dir := t.TempDir()
	free, err := Own(t.Context(), dir, "/srv/first-home")
	must(t, err)
	atOnce, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Own(atOnce, dir, "/srv/second")
	fails(t, err, bothy.CodeConflict)
	e := bothy.AsError(err)
	for _, want := range []string{dir, fmt.Sprint(os.Getpid()), "/srv/first-home", "BOTHY_TEMPLATES", "BOTHY_HOME=/srv/first-home bothy down"} {
		if !strings.Contains(e.Detail+" "+e.Hint, want) {
			t.Errorf("%q, %q do not say %q", e.Detail, e.Hint, want)
		}
	}
	l := NewLibrary(dir, Options{})
	if list, err := l.All(); err != nil || len(list) > 0 {
		t.Errorf("the folder has %v: %v", list, err)
	}
	free()
	free, err = Own(atOnce, dir, "/srv/2") // a shorter name than that before
	must(t, err)
	defer free()
	_, err = Own(atOnce, dir, "/srv/third")
	if err == nil || !strings.Contains(err.Error(), "the home /srv/2") {
		t.Error(err)
	}
}
