package vectors

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

var update = flag.Bool("update", false, "write what the Go library says into testdata/dockerignore.json")

// ignoring is a .dockerignore, and which of some paths it leaves out of a build's context.
// The tests of both SDKs read the same file.
type ignoring struct {
	Ignore  string   `json:"ignore"`
	Paths   []string `json:"paths"`
	Ignored []string `json:"ignored"`
}

func TestDockerignore(t *testing.T) {
	const name = "testdata/dockerignore.json"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var list []ignoring
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	for i, c := range list {
		lines, err := ignorefile.ReadAll(strings.NewReader(c.Ignore))
		if err != nil {
			t.Fatal(err)
		}
		m, err := patternmatcher.New(lines)
		if err != nil {
			t.Fatal(err)
		}
		ignored := []string{}
		for _, path := range c.Paths {
			if out, err := m.MatchesOrParentMatches(path); err != nil {
				t.Fatal(err)
			} else if out {
				ignored = append(ignored, path)
			}
		}
		if *update {
			list[i].Ignored = ignored
		} else if !reflect.DeepEqual(ignored, c.Ignored) {
			t.Errorf("%q leaves out %q, and the file says %q", c.Ignore, ignored, c.Ignored)
		}
	}
	if *update {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		if err := e.Encode(list); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
