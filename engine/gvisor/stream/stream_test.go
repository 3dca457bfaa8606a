// Package stream tests how the patched library writes and reads the objects of a checkpoint.
package stream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"reflect"
	"testing"

	"gvisor.dev/gvisor/pkg/compressio"
	"gvisor.dev/gvisor/pkg/state"
)

type number int64

// node has a field of every kind with a special encoding.
type node struct {
	id     number
	text   string
	small  [3]byte
	empty  [0]byte
	named  [4]octet
	bytes  []byte
	middle *byte // points into bytes
	floats []float64
	table  map[string]*node
	next   *node
	any    any
}

type octet uint8

func (*node) StateTypeName() string { return "stream.node" }
func (*node) StateFields() []string {
	return []string{"id", "text", "small", "empty", "named", "bytes", "middle", "floats", "table", "next", "any"}
}

func (n *node) fields() []any {
	return []any{&n.id, &n.text, &n.small, &n.empty, &n.named, &n.bytes, &n.middle, &n.floats, &n.table, &n.next, &n.any}
}

func (n *node) StateSave(s state.Sink) {
	for i, f := range n.fields() {
		s.Save(i, f)
	}
}

func (n *node) StateLoad(_ context.Context, s state.Source) {
	for i, f := range n.fields() {
		s.Load(i, f)
	}
}

func init() { state.Register((*node)(nil)) }

// chain returns a ring of n nodes.
func chain(n int) *node {
	first := &node{}
	last := first
	for i := range n {
		last.id, last.text = number(i-n/2)<<(i%56), fmt.Sprint("node ", i)
		last.small, last.named = [3]byte{byte(i), 0, 255}, [4]octet{1, 2, 200, octet(i)}
		last.bytes = bytes.Repeat([]byte{byte(i), 0x80, 0xff}, i%700+1)
		last.middle = &last.bytes[len(last.bytes)/2]
		last.floats = []float64{1.5, float64(i)}
		last.table = map[string]*node{"self": last, "first": first}
		last.any = last.bytes[:1]
		if i < n-1 {
			last.next = &node{}
			last = last.next
		}
	}
	last.next = first
	return first
}

// same compares two chains.
func same(a, b *node) error {
	for i, begin := 0, a; ; i++ {
		if a.id != b.id || a.text != b.text || a.small != b.small || a.named != b.named ||
			!bytes.Equal(a.bytes, b.bytes) || cap(a.bytes) != cap(b.bytes) || !reflect.DeepEqual(a.floats, b.floats) {
			return fmt.Errorf("node %d is %+v instead of %+v", i, *b, *a)
		}
		if b.middle != &b.bytes[len(b.bytes)/2] || b.table["self"] != b || len(b.table) != 2 || &b.any.([]byte)[0] != &b.bytes[0] {
			return fmt.Errorf("node %d points elsewhere", i)
		}
		if a, b = a.next, b.next; a == begin {
			return nil
		}
	}
}

// write writes chains one after the other.
func write(t *testing.T, key []byte, chains ...*node) []byte {
	t.Helper()
	var file bytes.Buffer
	w := compressio.NewSimpleWriter(&file, key, 4096)
	for _, c := range chains {
		if _, err := state.Save(t.Context(), w, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// Each stream ends where the next begins, even with read-ahead.
func TestStreamsFollowEachOther(t *testing.T) {
	for _, key := range [][]byte{nil, []byte("key")} {
		chains := []*node{chain(1), chain(800), chain(64), chain(2)}
		r := compressio.NewSimpleReader(io.NopCloser(bytes.NewReader(write(t, key, chains...))), key)
		for i, want := range chains {
			got := &node{}
			if _, err := state.Load(t.Context(), r, got); err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
			if err := same(want, got); err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		}
		if n, err := io.Copy(io.Discard, r); n != 0 || err != nil {
			t.Errorf("%d bytes are left, %v", n, err)
		}
	}
}

// A stream that is cut off anywhere is an error, and its reader does not hang.
func TestDamagedStreamEnds(t *testing.T) {
	file := write(t, nil, chain(40))
	load := func(b []byte) error {
		_, err := state.Load(t.Context(), compressio.NewSimpleReader(io.NopCloser(bytes.NewReader(b)), nil), &node{})
		return err
	}
	if err := load(file); err != nil {
		t.Fatal(err)
	}
	for n := range len(file) {
		if n%97 == 0 && load(file[:n]) == nil {
			t.Fatalf("%d of %d bytes were accepted as complete", n, len(file))
		}
	}
}

// plainStream is the SHA-256 of plainChain as written by the published library.
const plainStream = "3842626abe2f2f42be4b1acf1a829d9116cb7a6bb0013a26fcafa417e17b57e5"

// plainChain is a chain without arrays of bytes, which the patched library encodes differently.
func plainChain() *node {
	first := &node{}
	last := first
	for i := range 200 {
		last.id, last.text = number(i-100)<<(i%56), fmt.Sprint("node ", i)
		last.floats = []float64{1.5, float64(i)}
		last.table = map[string]*node{"first": first}
		last.any = &last.floats[1]
		last.next = &node{}
		last = last.next
	}
	return first
}

// The output is identical to the published library's, so that its tools can read it.
func TestStreamIsThatOfThePublishedLibrary(t *testing.T) {
	if sum := fmt.Sprintf("%x", sha256.Sum256(write(t, nil, plainChain()))); sum != plainStream {
		t.Errorf("the stream is %s, want %s", sum, plainStream)
	}
}
