package entry

import "testing"

// The library's types may change with a new version: without this nothing would
// break, but snapshots would take twice as long.
func TestLayoutIsKnown(t *testing.T) {
	if layout.err != nil {
		t.Fatal(layout.err)
	}
	if layout.vmas.valueSize == 0 || layout.pmas.valueSize == 0 || layout.vmasAt == layout.pmasAt {
		t.Errorf("the layout is %+v", layout)
	}
}
