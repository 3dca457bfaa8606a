package template

import (
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/templates"
)

func TestTheBuiltInTemplates(t *testing.T) {
	want := []string{"debian-12", "node-22", "python-3.12", "python-3.12-bare", "ubuntu-24.04"}
	if got := templates.Names(); !slices.Equal(got, want) {
		t.Fatalf("built in are %v", got)
	}
	if !slices.Contains(want, bothy.DefaultTemplate) {
		t.Errorf("the default %s is not built in", bothy.DefaultTemplate)
	}
	for _, name := range want {
		d, err := readDefinition(templates.Files, name)
		must(t, err)
		if d.Description == "" || len(d.Languages) == 0 || !slices.Contains(d.Debian.Packages, "sudo") || !slices.Contains(d.Debian.Packages, "ca-certificates") {
			t.Errorf("%s is incomplete: %+v", name, d)
		}
	}
}

func TestADefinitionExtendsAnother(t *testing.T) {
	d, err := readDefinition(templates.Files, "python-3.12")
	must(t, err)
	base, err := readDefinition(templates.Files, "python-3.12-bare")
	must(t, err)
	if d.Description == base.Description || d.Python.Requirements == "" || d.Python.Pip != base.Python.Pip || d.Env["PYTHONUNBUFFERED"] != "1" || base.Python.Requirements != "" {
		t.Errorf("python-3.12 is %+v over %+v", d.Python, base.Python)
	}
}

func TestARecipeCoversEveryInput(t *testing.T) {
	base := fstest.MapFS{
		"a.yaml":   {Data: []byte("extends: b\npython: {requirements: r.lock}\nnode: {bundle: p, requirements: n.lock}\n")},
		"b.yaml":   {Data: []byte("debian: {suite: x}\npython: {bundle: p, pip: pip.lock}\n")},
		"pip.lock": {Data: []byte("pip==1")}, "r.lock": {Data: []byte("r==1")}, "n.lock": {Data: []byte("n==1")},
	}
	recipe := func(files fs.FS) string {
		d, err := readDefinition(files, "a")
		must(t, err)
		r, err := d.recipe(files)
		must(t, err)
		return r
	}
	first := recipe(base)
	if again := recipe(base); first == "" || again != first {
		t.Fatalf("the recipe is %q first and %q then", first, again)
	}
	for name, text := range map[string]string{
		"b.yaml": "debian: {suite: y}\npython: {bundle: p, pip: pip.lock}\n", "pip.lock": "pip==2", "r.lock": "r==2", "n.lock": "n==2",
	} {
		files := maps.Clone(base)
		files[name] = &fstest.MapFile{Data: []byte(text)}
		if recipe(files) == first {
			t.Errorf("the recipe does not change with %s", name)
		}
	}
}

func TestAnOldTemplateIsNotUpToDate(t *testing.T) {
	d, err := readDefinition(templates.Files, "python-3.12")
	must(t, err)
	recipe, err := d.recipe(templates.Files)
	must(t, err)
	build := bothy.TemplateBuild{Name: "python-3.12"}
	if !upToDate(&store.Template{Template: bothy.Template{Recipe: recipe}}, build) {
		t.Error("a template of this recipe would be built again")
	}
	if upToDate(&store.Template{}, build) {
		t.Error("a template of another recipe counts as up to date")
	}
	build.Image = "busybox"
	if !upToDate(&store.Template{}, build) {
		t.Error("an image would be imported again")
	}
}

func TestDefinitionsWithMistakesAreRefused(t *testing.T) {
	for _, text := range []string{"description: no base\n", "extends: missing\n", "debian: {suite: x}\npackagse: []\n", "extends: a\ndebian: {suite: x}\n"} {
		if d, err := readDefinition(fstest.MapFS{"a.yaml": {Data: []byte(text)}}, "a"); err == nil {
			t.Errorf("%q was accepted as %+v", text, d)
		}
	}
}

// A lock lists every package with its version and digests, but not where it comes from.
func TestLocks(t *testing.T) {
	locks, err := fs.Glob(templates.Files, "*.lock")
	must(t, err)
	if len(locks) != 3 {
		t.Fatalf("locks: %v", locks)
	}
	for _, lock := range locks {
		data, err := templates.Files.ReadFile(lock)
		must(t, err)
		text := string(data)
		if strings.Contains(text, "://") || strings.Contains(text, "-i ") {
			t.Errorf("%s names a package index", lock)
		}
		for _, block := range regexp.MustCompile(`(?m)^[a-z0-9].*(\n .*)*`).FindAllString(text, -1) {
			if !regexp.MustCompile(`^[a-z0-9-]+==[^ ]+ \\\n    --hash=sha256:[0-9a-f]{64}`).MatchString(block) {
				t.Errorf("%s: %.60s", lock, block)
			}
		}
		wanted, err := templates.Files.ReadFile(strings.TrimSuffix(lock, ".lock") + ".in")
		must(t, err)
		for _, name := range lines(string(wanted)) {
			name = regexp.MustCompile(`^[a-z0-9-]+`).FindString(name)
			if !regexp.MustCompile(`(?m)^` + name + `==`).MatchString(text) {
				t.Errorf("%s lacks %s", lock, name)
			}
		}
	}
}
