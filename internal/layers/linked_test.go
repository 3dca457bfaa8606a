package layers

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestProgramsLinkNothingForTests fails if an installed program contains packages that only tests,
// measurements or the build need.
func TestProgramsLinkNothingForTests(t *testing.T) {
	for _, program := range []string{"bothy", "guest", "sentry", "vminit"} {
		cmd := exec.Command("go", "list", "-deps", "./cmd/"+program)
		cmd.Dir, cmd.Stderr = "../..", os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		deps := strings.Fields(string(out))
		if !slices.Contains(deps, Module+"/cmd/"+program) {
			t.Fatalf("go list does not name %s itself", program)
		}
		for _, wrong := range Linked(deps) {
			t.Errorf("cmd/%s links %s, which only tests, measurements or the build may use; go mod why says who imports it", program, wrong)
		}
	}
}

func TestLinkedFindsWhatIsForTests(t *testing.T) {
	deps := []string{"fmt", "internal/testlog", "testing", "testing/synctest", Module + "/engine/enginetest", Module + "/template", Module + "/test/testserver",
		"github.com/letsencrypt/pebble/v2/ca", "github.com/google/go-cmp-like"}
	want := []string{"testing", "testing/synctest", Module + "/engine/enginetest", Module + "/test/testserver", "github.com/letsencrypt/pebble/v2/ca"}
	if got := Linked(deps); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
