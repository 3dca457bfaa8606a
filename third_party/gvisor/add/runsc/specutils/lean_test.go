package specutils

import (
	"encoding/json"
	"errors"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

type unreadable struct{}

func (unreadable) Read([]byte) (int, error) { return 0, errors.New("read") }

// A plain spec is not decoded by the decoder that it comes with; one that says more is.
func TestPlainSpecIsDecodedLeanly(t *testing.T) {
	const plain = `{"ociVersion":"1.0.0","process":{"args":["a"],"capabilities":{"bounding":["CAP_KILL"]}},"mounts":[{"destination":"/x","options":["ro"]}]}`
	var spec specs.Spec
	if err := decodeSpec([]byte(plain), json.NewDecoder(unreadable{}), &spec); err != nil {
		t.Fatal(err)
	}
	if got := spec.Process.Capabilities.Bounding; len(got) != 1 || got[0] != "CAP_KILL" || spec.Mounts[0].Options[0] != "ro" {
		t.Errorf("the spec is %+v", spec)
	}
	const more = `{"ociVersion":"1.0.0","linux":{"maskedPaths":["/proc/kcore"]}}`
	if err := decodeSpec([]byte(more), json.NewDecoder(unreadable{}), &spec); err == nil {
		t.Error("a spec that says more was decoded as if it did not")
	}
}
