//go:build gvisorpatched

package entry

import "testing"

func TestWarmTypesFindsWhatIsSaved(t *testing.T) {
	if n := warmTypes(); n < 500 {
		t.Fatalf("of %d types that are saved only %d can be", len(savedTypes()), n)
	}
}
