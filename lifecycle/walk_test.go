package lifecycle_test

import (
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/rest"
)

// maxStops limits how many functions and files a create passes from the API to the engine.
const maxStops = 25

// TestACreateFollowsTheDocumentation compares the call chain of a create with docs/architecture.md: its
// numbered functions call each other down to the engine, and each calls the functions listed below it.
func TestACreateFollowsTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "### A create, function by function\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var listed []string
	asked := map[string][]string{}
	stops := 0
	for _, m := range regexp.MustCompile("(?m)^( *)(?:[0-9]+\\.|-) `([A-Za-z/.]+)`").FindAllStringSubmatch(text, -1) {
		stops++
		if m[1] == "" {
			listed = append(listed, m[2])
		} else {
			above := listed[len(listed)-1]
			asked[above] = append(asked[above], m[2])
		}
	}
	if stops > maxStops {
		t.Errorf("a create has %d stops, but at most %d are allowed", stops, maxStops)
	}
	passed, files := passedByCreate(t)
	if want := append(passed, "Engine.Start"); !slices.Equal(listed, want) {
		t.Errorf("the page lists\n%v\nbut a create passes through\n%v", listed, want)
	}
	for at, names := range asked {
		for _, name := range names {
			if !strings.Contains(files[at], "."+name+"(") {
				t.Errorf("%s does not call %s", at, name)
			}
		}
	}
}

// passedByCreate returns the names of the functions that a create passes through on its way to the
// engine, and the text of the file of each.
func passedByCreate(t *testing.T) (names []string, files map[string]string) {
	const module = "github.com/bothy-dev/bothy/"
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	files = map[string]string{}
	w.host.FailStart = func(string) error {
		pcs := make([]uintptr, 100)
		var passed []runtime.Frame
		frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			passed = append(passed, f)
		}
		for _, f := range slices.Backward(passed) {
			file := strings.TrimPrefix(strings.TrimPrefix(f.File, module), root+"/") // without the path of the build
			folder := filepath.Dir(file)
			if !strings.HasPrefix(f.Function, module) || strings.HasSuffix(file, "_test.go") || folder == "engine/fake" {
				continue
			}
			// Function literals are not listed, since they are named after the functions around them.
			name := regexp.MustCompile(`\[\.\.\.\]|\.func[0-9.]+|[()*]`).ReplaceAllString(f.Function, "")
			words := strings.Split(name, ".")
			words = words[len(words)-2:]
			if words[0] = path.Base(words[0]); words[0] == path.Base(folder) {
				words = words[1:]
			}
			name = folder + "." + strings.Join(words, ".")
			if slices.Contains(names, name) {
				continue
			}
			names = append(names, name)
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Error(err)
			}
			files[name] = string(text)
		}
		return nil
	}
	s := api.New(api.Services{Services: rest.Services{Tokens: apitest.NewTokens(), Sandboxes: w}, Log: slog.New(slog.DiscardHandler)}, api.Config{Listen: "127.0.0.1:0"})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve() }()
	defer s.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/sandboxes", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+apitest.Writer)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		t.Fatalf("the create ended with %s", answer.Status)
	}
	return names, files
}
