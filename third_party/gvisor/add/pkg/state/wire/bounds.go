package wire

import "fmt"

// What is read is not trusted: a stream may say that a value has more elements than there
// are bytes left, or nest values without end. Memory is therefore taken as elements are
// read, not when they are announced, and nesting has a bound.
const (
	// maxDepth bounds how deep values are nested in one object. Types bound it in a stream
	// that was written by Save: the kernel's nest 14 deep.
	maxDepth = 100

	// maxDots bounds the path from an object to a part of it.
	maxDots = 64

	// maxFieldName and maxFields bound what a type and a path may say of a struct.
	maxFieldName = 1 << 10
	maxFields    = 1 << 10

	// maxAhead is for how many elements there is room before the first of them is read.
	maxAhead = 256

	// maxBytesAhead is for how many bytes there is room before any is read.
	maxBytesAhead = 64 << 10
)

// enter is called before the parts of a value are read.
func (r *Reader) enter() {
	if r.depth++; r.depth > maxDepth {
		panic(fmt.Errorf("values are nested more than %d deep", maxDepth))
	}
}

// leave is called when they are. A reader that failed is not used again.
func (r *Reader) leave() { r.depth-- }

// loadCount reads how many of something follow, each of which takes a byte at least.
func loadCount(r *Reader, what string) int {
	n := loadUint(r)
	if n > Uint(r.limit()) {
		panic(fmt.Errorf("%d %s in a stream of %d bytes", n, what, r.limit()))
	}
	return int(n)
}

// limit is how many bytes the stream has at most.
func (r *Reader) limit() int64 {
	if r.Size > 0 {
		return r.Size
	}
	return unknownSize
}

// unknownSize stands for the size of a stream where nobody knows it.
const unknownSize = 1 << 30

// readBytes reads so many bytes.
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

// grown returns objects, of which there will be so many, with room for one more.
func grown(objects []Object, l int) []Object {
	more := make([]Object, min(l, max(maxAhead, 2*len(objects))))
	copy(more, objects)
	return more
}

// mustTakeBytes panics for a value without a byte of its own, of which a stream could have
// any number.
func mustTakeBytes(o Object) {
	switch o.(type) {
	case Nil, noObjects:
		panic(fmt.Errorf("an element is a %T", o))
	}
}
