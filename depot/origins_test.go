package depot

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy/blob/dir"
	"github.com/bothy-dev/bothy/snapshot"
)

// A manifest is read once for as long as its snapshot exists.
func TestOriginsAreReadOnce(t *testing.T) {
	root := t.TempDir()
	blobs, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(root, "snpa", snapshot.ManifestName)
	text, err := json.Marshal(snapshot.Manifest{Version: snapshot.Version, ProjectID: "p", Sandbox: snapshot.Origin{TemplateDigest: "sha256:1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(manifest), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifest, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var o origins
	want := origin{image: "sha256:1", project: "p"}
	if got, err := o.of(t.Context(), blobs, "snpa"); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	if got, err := o.of(t.Context(), blobs, "snpa"); err != nil || got != want {
		t.Errorf("it was read again: %+v, %v", got, err)
	}
	o.keep(nil)
	if got, err := o.of(t.Context(), blobs, "snpa"); err == nil {
		t.Errorf("a snapshot that is gone is remembered: %+v", got)
	}
}
