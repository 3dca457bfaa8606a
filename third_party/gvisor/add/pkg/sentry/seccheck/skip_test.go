package seccheck

import "testing"

func TestSkipInitialize(t *testing.T) {
	SkipInitialize()
	Initialize()
	if len(Points) > 0 {
		t.Errorf("%d points are described", len(Points))
	}
}
