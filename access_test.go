package bothy

import (
	"strings"
	"testing"
)

// Who gives a snapshot's id for a sandbox is told so.
func TestASnapshotIsNoSandbox(t *testing.T) {
	err := NoSandbox("snp1")
	if err.Code != CodeSandboxNotFound || !strings.Contains(err.Detail, "snapshot") || !strings.Contains(err.Hint, "GET /v1/snapshots/snp1.") {
		t.Errorf("%v %s", err, err.Hint)
	}
	if err := NoSandbox("sbx1"); strings.Contains(err.Detail, "snapshot") {
		t.Error(err)
	}
}
