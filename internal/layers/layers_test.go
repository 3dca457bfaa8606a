package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// packages runs go list for the imports of all packages.
func packages(t *testing.T) (list []Package) {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// TestArrows fails for an import that is not allowed. -v draws all of them.
func TestArrows(t *testing.T) {
	arrows, wrong := Check(packages(t))
	for _, w := range wrong {
		t.Error(w)
	}
	t.Log("\n" + Picture(arrows))
}

func TestForbiddenArrowsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		p    Package
		want string
	}{
		"a service and an engine": {Package{Module + "/lifecycle", []string{Module + "/engine/gvisor"}}, "lifecycle may not import engine"},
		"a door and a service":    {Package{Module + "/api/rest", []string{Module + "/lifecycle"}}, "api/rest may not import lifecycle"},
		"a part and the server":   {Package{Module + "/store/sqlite", []string{Module + "/server"}}, "store may not import server"},
		"the root":                {Package{Module, []string{"context", "golang.org/x/sys/unix"}}, "the standard library only"},
		"a new room":              {Package{Module + "/attic", nil}, "add the room attic"},
		"an allowance unused":     {Package{Module + "/lifecycle", nil}, "lifecycle → store is allowed and not used"},
	} {
		_, wrong := Check([]Package{c.p})
		if !slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, c.want) }) {
			t.Errorf("%s: %q is not in %q", name, c.want, wrong)
		}
	}
	arrows, wrong := Check([]Package{
		{Module + "/lifecycle", []string{"context", Module, Module + "/internal/cleanup", Module + "/store", Module + "/lifecycle/inner"}},
		{Module + "/test/e2e", []string{Module + "/engine/gvisor"}},
	})
	for _, w := range wrong {
		if !strings.Contains(w, "not used") {
			t.Error(w)
		}
	}
	if len(arrows) != 1 || !arrows[Arrow{"lifecycle", "store"}] {
		t.Errorf("arrows: %v", arrows)
	}
}
