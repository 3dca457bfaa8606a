package state

import (
	"reflect"
	"unsafe"

	"gvisor.dev/gvisor/pkg/state/wire"
	"gvisor.dev/gvisor/pkg/tuning"
)

// bytesOf returns the content of an array of bytes, or nil for anything else.
func bytesOf(obj reflect.Value) []byte {
	if obj.Kind() != reflect.Array || obj.Type().Elem() != reflect.TypeFor[byte]() || obj.Len() == 0 || !obj.CanAddr() {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(obj.UnsafeAddr())), obj.Len())
}

// wholeArrays says whether arrays of bytes are written as one object. Both forms can be read.
var wholeArrays = tuning.On("byte-arrays")

func encodeBytes(obj reflect.Value, dest *wire.Object) bool {
	b := bytesOf(obj)
	if b == nil || !wholeArrays {
		return false
	}
	s := wire.String(b)
	*dest = &s
	return true
}

func decodeString(obj reflect.Value, s string) {
	b := bytesOf(obj)
	switch {
	case b == nil:
		obj.SetString(s)
	case len(b) != len(s):
		Failf("mismatching array length expect=%d, actual=%d", len(b), len(s))
	default:
		copy(b, s)
	}
}
