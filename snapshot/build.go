package snapshot

import (
	"encoding/json"

	"github.com/bothy-dev/bothy"
)

// BuildOf returns the engine build that wrote the memory of the snapshot with a manifest, or ""
// if it has no memory. It also reads manifests of other versions of the format.
func BuildOf(manifest []byte) string {
	var m struct {
		Kind        bothy.SnapshotKind `json:"kind"`
		EngineBuild string             `json:"engine_build"`
	}
	if json.Unmarshal(manifest, &m) != nil || m.Kind == bothy.SnapshotFiles {
		return "" // nothing can be restored from it
	}
	return m.EngineBuild
}
