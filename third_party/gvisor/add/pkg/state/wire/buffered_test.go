package wire

import (
	"bufio"
	"bytes"
	"testing"
)

func TestNumbersGoStraightThroughBuffers(t *testing.T) {
	var b bytes.Buffer
	out := bufio.NewWriter(&b)
	w := Writer{Writer: out}
	for _, u := range []Uint{0, 1, 0x7f} {
		if !w.buffered(u) {
			t.Errorf("%d is not written to the buffer", u)
		}
	}
	if w.buffered(0x80) {
		t.Error("a number of two bytes was written as one")
	}
	Uint(0x80).save(&w)
	out.Flush()
	r := Reader{Reader: bufio.NewReader(&b)}
	for _, want := range []Uint{0, 1, 0x7f} {
		if got := loadUint(&r); got != want {
			t.Errorf("%d is read as %d", want, got)
		}
	}
	if got := loadUint(&r); got != 0x80 {
		t.Errorf("%d is read as %d", 0x80, got)
	}
}

// TestNumbersOfOneByteNeedNoOtherBuffer finds a Writer's and a Reader's own buffer as it
// was: only what does not go straight through is put there first.
func TestNumbersOfOneByteNeedNoOtherBuffer(t *testing.T) {
	const untouched = 0xaa
	var b bytes.Buffer
	out := bufio.NewWriter(&b)
	w := Writer{Writer: out}
	w.buf[0] = untouched
	Uint(5).save(&w)
	if out.Flush(); w.buf[0] != untouched || b.Len() != 1 {
		t.Errorf("a number was written by way of %#x, in %d bytes", w.buf[0], b.Len())
	}
	r := Reader{Reader: bufio.NewReader(&b)}
	r.buf[0] = untouched
	if got := loadUint(&r); got != 5 || r.buf[0] != untouched {
		t.Errorf("%d was read by way of %#x", got, r.buf[0])
	}
}
