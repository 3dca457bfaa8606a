package snapshot

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
)

// BuildOf returns the engine build that wrote the memory of the snapshot in dir, or "" where
// there is none that could be woken. It also reads manifests of other versions of the format.
func BuildOf(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var m struct {
		Kind        bothy.SnapshotKind `json:"kind"`
		EngineBuild string             `json:"engine_build"`
	}
	if json.Unmarshal(b, &m) != nil || m.Kind == bothy.SnapshotFiles {
		return "", nil // nothing could be woken from it
	}
	return m.EngineBuild, nil
}
