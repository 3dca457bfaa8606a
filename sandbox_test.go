package bothy

import (
	"maps"
	"testing"
)

func TestParseHostLabels(t *testing.T) {
	got, err := ParseHostLabels("zone=a, disk=nvme=2,empty=")
	if want := map[string]string{"zone": "a", "disk": "nvme=2", "empty": ""}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "zone", "=a", "zone=a,", "zone=a,zone=b", `{"zone":"a"}`} {
		if got, err := ParseHostLabels(text); err == nil {
			t.Errorf("%q became %v", text, got)
		}
	}
}
