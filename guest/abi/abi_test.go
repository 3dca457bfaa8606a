package abi

import (
	"testing"
	"unsafe"
)

// The engine reads a call's fields by their offsets.
func TestLayoutOfABatch(t *testing.T) {
	var c BatchCall
	for what, x := range map[string][2]uintptr{
		"the size of a call": {unsafe.Sizeof(c), 64}, "number": {unsafe.Offsetof(c.Number), 0}, "spare": {unsafe.Offsetof(c.Spare), 4},
		"arguments": {unsafe.Offsetof(c.Args), 8}, "result": {unsafe.Offsetof(c.Result), 56},
	} {
		if x[0] != x[1] {
			t.Errorf("%s: %d, want %d", what, x[0], x[1])
		}
	}
}
