package server

import (
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
)

// What one host fetches would be lost to the others.
func TestAHostOfAClusterDoesNotLeaveTheObjectStorage(t *testing.T) {
	c := config.Config{Home: t.TempDir(), Blobs: "s3://bothy", Cluster: config.Cluster{Name: "one"}}
	if _, err := MigrateBlobs(t.Context(), c, "host", Options{}); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("it is allowed: %v", err)
	}
	c.Cluster.Name = ""
	if _, err := MigrateBlobs(t.Context(), c, "host", Options{}); bothy.ErrorCode(err) != bothy.CodeFileNotFound {
		t.Errorf("a server without state: %v", err)
	}
}
