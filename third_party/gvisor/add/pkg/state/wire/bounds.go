package wire

import "fmt"

// The stream is not trusted: it may announce more elements than there are bytes left, or nest
// values without end. Memory is therefore allocated as elements are read, and nesting is
// limited.
const (
	// maxDepth limits how deep values are nested in one object. In a stream that Save wrote,
	// types limit it: the kernel's nest 14 deep.
	maxDepth = 100

	// maxDots limits the path from an object to a part of it.
	maxDots = 64

	// maxFieldName and maxFields limit the field names and fields of a struct.
	maxFieldName = 1 << 10
	maxFields    = 1 << 10

	// maxAhead is how many elements are allocated before the first is read.
	maxAhead = 256

	// maxBytesAhead is how many bytes are allocated before any is read.
	maxBytesAhead = 64 << 10
)

// enter is called before the parts of a value are read.
func (r *Reader) enter() {
	if r.depth++; r.depth > maxDepth {
		panic(fmt.Errorf("values are nested more than %d deep", maxDepth))
	}
}

// leave is called after them. A reader that failed is not used again.
func (r *Reader) leave() { r.depth-- }

// loadCount reads a number of elements that follow, each of which takes at least a byte.
func loadCount(r *Reader, what string) int {
	n := loadUint(r)
	if n > Uint(r.limit()) {
		panic(fmt.Errorf("%d %s in a stream of %d bytes", n, what, r.limit()))
	}
	return int(n)
}

// limit returns how many bytes the stream has at most.
func (r *Reader) limit() int64 {
	if r.Size > 0 {
		return r.Size
	}
	return unknownSize
}

// unknownSize is the assumed size of a stream of unknown size.
const unknownSize = 1 << 30

// readBytes reads n bytes.
func readBytes(r *Reader, n int) []byte {
	p := make([]byte, min(n, maxBytesAhead))
	readFull(r, p)
	for len(p) < n {
		more := make([]byte, min(n, 4*len(p)))
		readFull(r, more[copy(more, p):])
		p = more
	}
	return p
}

// grown returns objects with room for one more, given how many there will be.
func grown(objects []Object, l int) []Object {
	more := make([]Object, min(l, max(maxAhead, 2*len(objects))))
	copy(more, objects)
	return more
}

// mustTakeBytes panics for a value that takes no bytes, of which a stream could contain any
// number.
func mustTakeBytes(o Object) {
	switch o.(type) {
	case Nil, noObjects:
		panic(fmt.Errorf("an element is a %T", o))
	}
}
