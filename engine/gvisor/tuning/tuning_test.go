package tuning

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestParse(t *testing.T) {
	off, err := Parse(" naps, garbage,,")
	if err != nil || !off[Naps] || !off[Garbage] || len(off) != 2 {
		t.Errorf("%v, %v", off, err)
	}
	if env := off.Env(); len(env) != 1 || env[0] != "BOTHY_GVISOR_OFF=garbage,naps" {
		t.Errorf("the environment is %q", env)
	}
	if off, err := Parse(""); err != nil || len(off.Env()) > 0 {
		t.Errorf("%v, %v", off, err)
	}
	_, err = Parse("naps,nap")
	if bothy.ErrorCode(err) != bothy.CodeInvalid || !strings.Contains(err.Error(), `"nap"`) || !strings.Contains(bothy.AsError(err).Hint, "garbage") {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestEachIsSomewhere(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range All {
		if seen[o.Name] {
			t.Errorf("two optimisations are called %s", o.Name)
		}
		seen[o.Name] = true
		path := filepath.Join("..", o.Where)
		if isPatch(o) {
			path = filepath.Join("../../../third_party/gvisor", o.Where)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", o.Name, err)
		}
		if !strings.HasSuffix(o.Does, ".") {
			t.Errorf("%s: %q is not a sentence", o.Name, o.Does)
		}
	}
}

// TestPatchesAskForTheirSwitches compares the headers of patches with the list, and checks that each patch
// reads its switch.
func TestPatchesAskForTheirSwitches(t *testing.T) {
	const series = "../../../third_party/gvisor/"
	listed := map[string]string{} // by patch
	for _, o := range All {
		if isPatch(o) {
			listed[filepath.Base(o.Where)] = o.Name
		}
	}
	patches, err := filepath.Glob(series + "patches/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatal(patches, err)
	}
	for _, path := range patches {
		text := read(t, path)
		head, _, _ := strings.Cut(text, "\n\n")
		name, adds := field(head, "Switch"), field(head, "Adds")
		if want := listed[filepath.Base(path)]; name != want {
			t.Errorf("%s is switched by %q, but listed as %q", filepath.Base(path), name, want)
		}
		for _, file := range strings.Fields(adds) {
			text += read(t, series+"add/"+file)
		}
		if name != "" && !isAskedByEngine(t, name) && !strings.Contains(text, `tuning.On("`+name+`")`) {
			t.Errorf("%s does not check whether %q is on", filepath.Base(path), name)
		}
	}
}

func TestTheOthersAreAskedFor(t *testing.T) {
	for _, o := range All {
		if !isPatch(o) && !isAskedByEngine(t, o.Name) {
			t.Errorf("no code checks whether %q is on", o.Name)
		}
	}
}

// isAskedByEngine reports whether package gvisor, entry or driver uses the constant of a name.
func isAskedByEngine(t *testing.T, name string) bool {
	t.Helper()
	constant := regexp.MustCompile(`(\w+) += "` + name + `"`).FindStringSubmatch(read(t, "list.go"))
	if constant == nil {
		return false
	}
	var files []string
	for _, folder := range []string{"..", "../entry", "../driver"} {
		in, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, in...)
	}
	use := regexp.MustCompile(`\btuning\.` + constant[1] + `\b`)
	return slices.ContainsFunc(files, func(file string) bool {
		return !strings.HasSuffix(file, "_test.go") && use.MatchString(read(t, file))
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// field is the value of a field in the head of a patch, with the lines in which it continues.
func field(head, name string) (value string) {
	in := false
	for line := range strings.Lines(head) {
		if rest, ok := strings.CutPrefix(line, name+": "); ok {
			in, value = true, strings.TrimSpace(rest)
		} else if in = in && strings.HasPrefix(line, "  "); in {
			value += " " + strings.TrimSpace(line)
		}
	}
	return value
}

// isPatch reports whether only the patched library has an optimisation.
func isPatch(o Optimisation) bool { return strings.HasPrefix(o.Where, "patches/") }
