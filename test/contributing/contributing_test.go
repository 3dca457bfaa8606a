// Package contributing checks that CONTRIBUTING.md is true.
package contributing

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func page(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestMapNamesEveryFolder(t *testing.T) {
	var named, there []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(page(t), -1) {
		named = append(named, m[1])
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "bin" && !strings.HasPrefix(e.Name(), ".") && holdsFiles(e.Name()) {
			there = append(there, e.Name())
		}
	}
	if !slices.Equal(named, there) {
		t.Errorf("the map names\n%v\nand there are\n%v", named, there)
	}
}

// holdsFiles reports whether a folder has files, unlike the remains of one that was moved.
func holdsFiles(dir string) (found bool) {
	_ = filepath.WalkDir(filepath.Join(root, dir), func(_ string, e fs.DirEntry, err error) error {
		if found = found || err == nil && !e.IsDir(); found {
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// TestNamedFilesExist checks each path in the text.
func TestNamedFilesExist(t *testing.T) {
	n := 0
	for _, m := range regexp.MustCompile("`([a-z0-9_]+(?:/[A-Za-z0-9_.-]+)+)`").FindAllStringSubmatch(page(t), -1) {
		if m[1] == "testing/synctest" || strings.HasPrefix(m[1], "bin/") { // of Go's library, or made by a build
			continue
		}
		n++
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("CONTRIBUTING.md names %s: %v", m[1], err)
		}
	}
	if n < 10 {
		t.Errorf("only %d paths were found", n)
	}
}

// TestCommandsExist checks that make knows each command in a block, and compares the names of the suites,
// which are the values of RUN.
func TestCommandsExist(t *testing.T) {
	text := page(t)
	n := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			words := strings.Fields(line)
			if words[0] != "make" {
				t.Errorf("nothing runs the command %q", line)
				continue
			}
			n++
			if out, err := exec.Command("make", append([]string{"-C", root, "--dry-run"}, words[1:]...)...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", strings.TrimSpace(line), err, out)
			}
		}
	}
	if n < 4 {
		t.Errorf("only %d commands were found", n)
	}
	cmd := exec.Command("go", "run", "./test/suites", "-check", "no-such-suite")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	_, list, ok := strings.Cut(string(out), "RUN may be ")
	if err == nil || !ok {
		t.Fatalf("a suite that does not exist: %v\n%s", err, out)
	}
	_, told, _ := strings.Cut(text, "`RUN` picks suites by name: ")
	told, _, _ = strings.Cut(told, ".")
	told = strings.Join(strings.Fields(strings.NewReplacer("`", "", ",", "").Replace(told)), " ")
	list, _, _ = strings.Cut(list, "\n") // then the go command says how it ended
	if told != list {
		t.Errorf("CONTRIBUTING.md lists the suites %q, but there are %q", told, list)
	}
}

// TestCheckDoesWhatIsListed compares what the page says of `make check` with its steps.
func TestCheckDoesWhatIsListed(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "scripts/check"))
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, m := range regexp.MustCompile(`(?m)^step "([^"]+)"$`).FindAllStringSubmatch(string(script), -1) {
		steps = append(steps, m[1])
	}
	_, told, _ := strings.Cut(strings.Join(strings.Fields(page(t)), " "), "starts no sandbox: ")
	told, _, _ = strings.Cut(told, ". Run it")
	list := strings.Split(strings.NewReplacer("`", "", " and ", ", ", "the ", "").Replace(told), ", ")
	if !slices.Equal(list, steps) {
		t.Errorf("CONTRIBUTING.md says that make check looks at %q, and it does %q", list, steps)
	}
	if variable := "BOTHY_CHECK_VULNERABILITIES"; !strings.Contains(string(script), variable) || !strings.Contains(page(t), variable) {
		t.Errorf("%s is not in both", variable)
	}
}
