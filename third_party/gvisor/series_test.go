// Package gvisor checks the patches with which Bothy builds gVisor. What they do is tested by
// the tests that they name.
package gvisor

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// firstPlain is the number from which on patches are not relevant to security.
const firstPlain = 1000

var (
	fileName = regexp.MustCompile(`^([0-9]{4})-[a-z0-9-]+\.patch$`)
	field    = regexp.MustCompile(`^([A-Z][a-z-]+): *(.*)$`)
	guard    = regexp.MustCompile(`^(\S+) (Test\w+)( \([^()]+\))?$`)
)

// header reads the fields at the head of a patch, and what else is there.
func header(text string) (fields map[string]string, rest string) {
	fields = map[string]string{}
	head, diff, _ := strings.Cut(text, "\n\n")
	last := ""
	for line := range strings.Lines(head) {
		line = strings.TrimRight(line, "\n")
		if m := field.FindStringSubmatch(line); m != nil {
			last = m[1]
			fields[last] = m[2]
		} else if strings.HasPrefix(line, "  ") && last != "" {
			fields[last] += " " + strings.TrimSpace(line)
		} else {
			return nil, line
		}
	}
	return fields, diff
}

func TestPatchesSayWhatTheyAreFor(t *testing.T) {
	patches, err := filepath.Glob("patches/*")
	if err != nil || len(patches) == 0 {
		t.Fatal(patches, err)
	}
	added, numbers := map[string]string{}, map[string]string{}
	for _, path := range patches {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			m := fileName.FindStringSubmatch(name)
			if m == nil {
				t.Fatal("its name is not NNNN-what-it-does.patch")
			}
			if other := numbers[m[1]]; other != "" {
				t.Errorf("%s has the same number", other)
			}
			numbers[m[1]] = name
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			fields, diff := header(string(text))
			if fields == nil {
				t.Fatalf("its head has a line that is no field: %q", diff)
			}
			checkFields(t, fields, m[1])
			if diff == "" && fields["Adds"] == "" {
				t.Error("it changes nothing")
			}
			for _, file := range strings.Fields(fields["Adds"]) {
				if _, err := os.Stat(filepath.Join("add", file)); err != nil {
					t.Errorf("Adds: %v", err)
				}
				if other := added[file]; other != "" {
					t.Errorf("%s is added by %s too", file, other)
				}
				added[file] = name
			}
		})
	}
	checkAdded(t, added)
}

func checkFields(t *testing.T, fields map[string]string, number string) {
	t.Helper()
	for _, required := range []string{"Why", "Gain", "Guarded-by", "Upstream", "Security"} {
		if fields[required] == "" {
			t.Errorf("it does not say %s", required)
		}
	}
	known := []string{"Why", "Gain", "Guarded-by", "Upstream", "Security", "Touches", "Switch", "Adds"}
	for name := range fields {
		if !slices.Contains(known, name) {
			t.Errorf("nobody knows the field %s", name)
		}
	}
	relevant := number < "1000"
	want := map[bool]string{true: "yes", false: "no"}[relevant]
	if fields["Security"] != want {
		t.Errorf("Security is %q: those with %q stand first, below %d, the others above", fields["Security"], "yes", firstPlain)
	}
	if relevant != (fields["Touches"] != "") {
		t.Errorf("Touches is %q for Security: %s", fields["Touches"], fields["Security"])
	}
	for one := range strings.SplitSeq(fields["Guarded-by"], ", ") {
		m := guard.FindStringSubmatch(one)
		if m == nil {
			t.Errorf("Guarded-by: %q is not FOLDER TestName", one)
			continue
		}
		if !hasTest(t, m[1], m[2]) {
			t.Errorf("Guarded-by: there is no %s in %s", m[2], m[1])
		}
	}
}

// hasTest reports whether a folder of the repository has a test.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
	})
}

func checkAdded(t *testing.T, added map[string]string) {
	t.Helper()
	err := filepath.WalkDir("add", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == filepath.Join("add", "go.mod") {
			return err
		}
		file, err := filepath.Rel("add", path)
		if err == nil && added[file] == "" {
			t.Errorf("no patch adds %s", file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
