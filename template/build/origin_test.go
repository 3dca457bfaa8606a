package build

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// A template says what it was made from, in the build that made it and in one that found
// everything done, and no secret.
func TestATemplateKnowsItsOrigin(t *testing.T) {
	w := newWorld(t)
	context := w.upload("a.txt", "a")
	base, err := w.library.LookupFor(t.Context(), bothy.DefaultProject, "base")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second"} {
		r := w.build(bothy.BuildRequest{
			Name: name, ContextID: context, Args: map[string]string{"VERSION": "3", "API_TOKEN": "tops3cret"}, Secrets: []bothy.BuildSecret{{ID: "key", Value: "hidd3n"}},
			Dockerfile: "FROM scratch AS empty\nFROM base\nARG VERSION API_TOKEN\nCOPY a.txt /a\nRUN write /done yes",
		})
		if r.Error != "" {
			t.Fatal(r.Error)
		}
		made, err := w.library.LookupFor(t.Context(), bothy.DefaultProject, name)
		if err != nil {
			t.Fatal(err)
		}
		o := made.Origin
		if o.Kind != bothy.FromDockerfile || o.ID != r.ID || o.StartedAt == nil || o.EndedAt == nil || o.EndedAt.Before(*o.StartedAt) {
			t.Errorf("%s: %+v", name, o)
		}
		want := []bothy.Material{{Name: "base", Digest: base.Digest}, {Name: "context", Digest: "sha256:" + strings.TrimPrefix(context, contextPrefix)}}
		if !slices.Equal(o.Materials, want) {
			t.Errorf("%s: materials %v, want %v", name, o.Materials, want)
		}
		if args, _ := o.Parameters["args"].(map[string]any); !maps.Equal(args, map[string]any{"VERSION": "3", "API_TOKEN": "(not recorded)"}) {
			t.Errorf("%s: arguments %v", name, o.Parameters["args"])
		}
		text, err := json.Marshal(o)
		if err != nil || strings.Contains(string(text), "tops3cret") || strings.Contains(string(text), "hidd3n") || !strings.Contains(string(text), `"secrets":["key"]`) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}
