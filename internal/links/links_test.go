package links

import "testing"

func TestClimbs(t *testing.T) {
	for target, want := range map[string]bool{
		"a": false, "../a": false, "../../a/b": false, "./../a": false, "a/./b": false, "a..b/c": false,
		"a/..": true, "a/../b": true, "../a/../../b": true, "a//..": true,
	} {
		if got := Climbs(target); got != want {
			t.Errorf("%q: %v", target, got)
		}
	}
}
