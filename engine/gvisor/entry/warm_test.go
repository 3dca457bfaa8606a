//go:build gvisorpatched

package entry

import "testing"

func TestWarmTypesFindsWhatIsSaved(t *testing.T) {
	if n := warmTypes(); n < 500 {
		t.Fatalf("of %d saved types only %d can be warmed up", len(savedTypes()), n)
	}
}
