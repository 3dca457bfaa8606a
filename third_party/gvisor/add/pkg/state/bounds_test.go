package state

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/compressio"
	"gvisor.dev/gvisor/pkg/state/wire"
)

// part has a field of each kind that a stream can lie about.
type part struct {
	next  *part
	wait  *part
	data  []byte
	parts []part
	table map[string]*part
	any   any
	pad   [4096]byte // is not saved
}

func (*part) StateTypeName() string { return "state.part" }
func (*part) StateFields() []string {
	return []string{"next", "wait", "data", "parts", "table", "any"}
}
func (p *part) StateSave(s Sink) {
	for i, f := range []any{&p.next, &p.wait, &p.data, &p.parts, &p.table, &p.any} {
		s.Save(i, f)
	}
}
func (p *part) StateLoad(_ context.Context, s Source) {
	s.Load(0, &p.next)
	s.LoadWait(1, &p.wait)
	for i, f := range []any{&p.data, &p.parts, &p.table} {
		s.Load(i+2, f)
	}
	s.LoadWait(5, &p.any)
	s.AfterLoad(func() {})
}

func init() { Register((*part)(nil)) }

// holder has the fields of a part only as long as it has one.
type holder struct{ *part }

func (*holder) StateTypeName() string             { return "state.holder" }
func (*holder) StateFields() []string             { return nil }
func (*holder) StateSave(Sink)                    {}
func (*holder) StateLoad(context.Context, Source) {}

func init() { Register((*holder)(nil)) }

// hostile is a stream that somebody made.
type hostile struct {
	bytes.Buffer
	w wire.Writer
}

// stream begins a stream of so many objects of which the root is a part.
func stream(objects uint64) *hostile {
	h := &hostile{}
	h.w.Writer = &h.Buffer
	WriteHeader(&h.w, objects, true)
	wire.Save(&h.w, &wire.Type{Name: "state.part", Fields: (*part)(nil).StateFields()})
	return h
}

func (h *hostile) bytes(s string) *hostile {
	h.WriteString(s)
	return h
}

func (h *hostile) uints(all ...uint64) *hostile {
	for _, u := range all {
		wire.SaveUint(&h.w, u)
	}
	return h
}

// The numbers of what is in a stream.
const (
	isUint      = 2
	isNil       = 5
	isRef       = 6
	isString    = 7
	isSlice     = 8
	isArray     = 9
	isMap       = 10
	isStruct    = 11
	isNoObjects = 12
	isObjects   = 13
	isInterface = 14
	isType      = 17
)

// part writes an object with a part: its fields are nil, or written by the functions.
func (h *hostile) part(id uint64, fields map[int]func()) *hostile {
	h.uints(isUint, id, isStruct, 1, isObjects, 6)
	for i := range 6 {
		if f := fields[i]; f != nil {
			f()
		} else {
			h.uints(isNil)
		}
	}
	return h
}

func (h *hostile) ref(id uint64) func() { return func() { h.uints(isRef, id, 0) } }

// lies are streams that cannot be decoded, and what is said of them.
func lies() map[string]struct {
	stream *hostile
	says   string
} {
	all := map[string]struct {
		stream *hostile
		says   string
	}{}
	add := func(name, says string, h *hostile) {
		all[name] = struct {
			stream *hostile
			says   string
		}{h, says}
	}
	field := func(name, says string, i int, f func(h *hostile)) {
		h := stream(1)
		add(name, says, h.part(1, map[int]func(){i: func() { f(h) }}))
	}
	field("an object's number", "there can be no object with the id 4294967295", 0, func(h *hostile) { h.uints(isRef, math.MaxUint32, 0) })
	field("a number beyond the objects", "there can be no object with the id 16777216", 0, func(h *hostile) { h.uints(isRef, 1<<24, 0) })
	field("an object's large number", "there can be no object with the id", 0, func(h *hostile) { h.uints(isRef, 1<<32, 0) })
	field("bytes of a slice", "larger than the stream allows", 2, func(h *hostile) { h.uints(isSlice, 1<<33, 1<<33, 2, 0) })
	field("parts of a slice", "larger than the stream allows", 3, func(h *hostile) { h.uints(isSlice, 1, 1<<16, 2, 0) })
	field("a slice's capacity", "larger than the stream allows", 2, func(h *hostile) { h.uints(isSlice, 1, 1<<63, 2, 0) })
	field("a slice's length", "is no []uint8", 2, func(h *hostile) { h.uints(isSlice, 9, 8, 2, 0) })
	field("an array", "larger than the stream allows", 5, func(h *hostile) { h.uints(isInterface, 2, 1<<20, 0, 1, isNil) })
	field("a string", "bytes in a stream of", 5, func(h *hostile) { h.uints(isString, 1<<36) })
	field("an array's elements", "elements in a stream of", 5, func(h *hostile) { h.uints(isArray, 1<<36) })
	field("elements without bytes", "an element is a wire.Nil", 5, func(h *hostile) { h.uints(isArray, 3, isNil) })
	field("a missing object", "object 2 (state.part) is missing", 0, func(h *hostile) { h.uints(isRef, 2, 0) })
	field("dots", "has 1000 dots", 0, func(h *hostile) { h.uints(isRef, 2, 1000) })
	field("a field's name", "a field's name has", 0, func(h *hostile) { h.uints(isRef, 2, 1, 1<<40|1) })
	field("a type", "there can be no type with the id 0", 5, func(h *hostile) { h.uints(isInterface, 0, 0, isNil) })
	field("another type", "type ID 2 not available", 5, func(h *hostile) { h.uints(isInterface, 0, 2, isNil) })
	add("a struct's fields", "has 6 fields, not 0", stream(1).uints(isUint, 1, isStruct, 1, isNoObjects))
	field("a struct for a pointer", "type ID 1 is state.part, not *state.part", 0, func(h *hostile) { h.uints(isStruct, 1, isNoObjects) })
	field("a deep type", "nested more than", 5, func(h *hostile) { h.uints(isInterface).deep(1<<20, 1) })
	field("deep values", "nested more than", 5, func(h *hostile) { h.deep(1<<20, isArray, 1) })
	field("deep interfaces", "nested more than", 5, func(h *hostile) { h.deep(1<<20, isInterface, 5) })
	field("deep structs", "nested more than", 5, func(h *hostile) { h.deep(1<<20, isStruct, 1) })
	add("the number of objects", "objects in a stream of", stream(1<<40))
	add("an object that comes twice", "object 1 comes after object 1", stream(2).part(1, nil).part(1, nil))
	add("no object's number", "no object with the id 0", stream(1).part(0, nil))
	add("an object that nobody refers to", "unused deferred object: ID 2", stream(2).part(1, nil).part(2, nil))
	add("a field that comes twice", "duplicate field", stream(1).uints(isType, 1, 'x', 2, 1, 'y', 1, 'y'))
	add("a type's fields", "has 2000 fields", stream(1).uints(isType, 1, 'x', 2000).deep(1<<12, 1))
	add("a tag", "unknown header", stream(1).uints(99))
	field("an index", "has the index", 0, func(h *hostile) { h.uints(isRef, 2, 1, 1<<33) })
	field("a type's large number", "there can be no type with the id", 5, func(h *hostile) { h.uints(isInterface, 0, 1<<40, isNil) })
	field("an element beyond an array", "there is no element 512 in", 0, func(h *hostile) { h.uints(isRef, 2, 1, 512<<1, 2, 512, 0, 1) })
	h := stream(1).uints(isType, 12).bytes("state.holder").uints(0)
	add("a field of another's", `there is no field "next" in state.holder`,
		h.part(1, map[int]func(){0: func() { h.uints(isRef, 2, 1, 4<<1-1).bytes("next").uints(0, 2) }}))

	// 2 and 4 wait for each other, and so do 3 and 5. 3 waits for 2 as well: who goes from 2
	// to those that wait for it, and on until 2 comes again, goes round for ever.
	h = stream(5)
	h.part(1, map[int]func(){0: h.ref(2)})
	h.part(2, map[int]func(){0: h.ref(3), 1: h.ref(4)})
	h.part(3, map[int]func(){1: h.ref(2), 5: func() { h.uints(isInterface, 1, 0, 1, isRef, 5, 0) }})
	h.part(4, map[int]func(){1: h.ref(2)})
	h.part(5, map[int]func(){1: h.ref(3)})
	add("a cycle", `dependency cycle: {"state.part" => "state.part"`, h)
	return all
}

// greedy are streams of which all is true, and that ask for far more than they are long.
func greedy() map[string]*hostile {
	return map[string]*hostile{
		"values of interfaces":  nested(300),
		"entries of a map":      entries(1 << 13),
		"types":                 types(200, 4, 0, 2),
		"types with long names": types(1000, 3),
	}
}

// nested are so many parts that refer to each other, each with a part in an interface, in
// which there is another, and so on: 4 KB for a dozen bytes.
func nested(parts uint64) *hostile {
	h := stream(parts)
	for id := uint64(1); id <= parts; id++ {
		inner := func() { h.uints(isNil) }
		for range 30 {
			next := inner
			inner = func() {
				h.uints(isInterface, 0, 1, isStruct, 1, isObjects, 6).deep(5, isNil)
				next()
			}
		}
		h.part(id, map[int]func(){0: h.ref(id%parts + 1), 5: inner})
	}
	return h
}

// entries is a map of so many parts.
func entries(n uint64) *hostile {
	h := stream(2)
	h.uints(isType, 6).bytes("uint64").uints(0)
	h.part(1, map[int]func(){5: func() { h.uints(isInterface, 4, 0, 2, 0, 1, isRef, 2, 0) }})
	h.uints(isUint, 2, isMap, n)
	h.uints(isUint, 0, isStruct, 1, isObjects, 6).deep(6, isNil)
	for k := uint64(1); k < n; k++ {
		h.uints(k, 1, isObjects, 6).deep(6, isNil)
	}
	return h
}

// types are so many parts with a nil of a type of its own, made of others in 90 steps.
func types(parts uint64, step ...uint64) *hostile {
	h := stream(parts)
	h.uints(isType, 6).bytes("uint64").uints(0)
	for id := uint64(1); id <= parts; id++ {
		h.part(id, map[int]func(){0: h.ref(id%parts + 1), 5: func() {
			h.uints(isInterface).deep(90, step...).uints(2, id, 0, 2, isNil)
		}})
	}
	return h
}

// deep repeats numbers.
func (h *hostile) deep(times int, numbers ...uint64) *hostile {
	for range times {
		h.uints(numbers...)
	}
	return h
}

// taken is how much memory f allocates.
func taken(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What a stream says is not believed: it is an error, and takes no more memory than a
// multiple of what there is of it.
func TestLiesAreErrors(t *testing.T) {
	for name, lie := range lies() {
		t.Run(name, func(t *testing.T) {
			size := lie.stream.Len()
			var err error
			used := taken(func() {
				_, err = Load(t.Context(), bytes.NewReader(lie.stream.Bytes()), new(part))
			})
			if err == nil || !strings.Contains(err.Error(), lie.says) {
				t.Errorf("it is %.300v, not %q", err, lie.says)
			}
			if err != nil && len(err.Error()) > 64<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if allowed := uint64(memoryAtLeast + 100*size); used > allowed {
				t.Errorf("%d bytes take %d of memory, at most %d are allowed", size, used, allowed)
			}
		})
	}
}

// What objects and their types take is bounded by a multiple of what there is of a stream.
func TestGreedIsBounded(t *testing.T) {
	for name, h := range greedy() {
		t.Run(name, func(t *testing.T) {
			var err error
			used := taken(func() { _, err = Load(t.Context(), bytes.NewReader(h.Bytes()), new(part)) })
			if err == nil || !strings.Contains(err.Error(), "the objects take more than") {
				t.Errorf("it is %.300v", err)
			}
			// A value is put together beside the place where it is to stay.
			if allowed := uint64(3 * (memoryAtLeast + memoryFactor*h.Len())); used > allowed {
				t.Errorf("%d bytes take %d of memory, at most %d are allowed", h.Len(), used, allowed)
			}
		})
	}
}

// A stream of which the size is not known is not believed either.
func TestLiesOfUnknownLength(t *testing.T) {
	for name, lie := range lies() {
		t.Run(name, func(t *testing.T) {
			_, err := Load(t.Context(), io.MultiReader(bytes.NewReader(lie.stream.Bytes())), new(part))
			if err == nil {
				t.Error("it is decoded")
			}
		})
	}
}

// Where nobody knows how long a stream is, memory is taken for what has been read of it.
func TestNothingIsTakenAhead(t *testing.T) {
	const many = 1 << 28
	for name, value := range map[string][]uint64{
		"bytes":    {isString, many},
		"elements": {isArray, many, isUint, 1},
		"entries":  {isMap, many, isUint, 1, isUint, 1},
		"fields":   {isStruct, 1, isObjects, many},
		"a name":   {isRef, 2, 1, many<<1 | 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := stream(1)
			h.part(1, map[int]func(){5: func() { h.uints(value...) }})
			used := taken(func() {
				if _, err := Load(t.Context(), io.MultiReader(bytes.NewReader(h.Bytes())), new(part)); err == nil {
					t.Error("it is decoded")
				}
			})
			if used > 1<<20 {
				t.Errorf("%d bytes take %d of memory", h.Len(), used)
			}
		})
	}
}

// A file with a hole says that it is large, and allows no more than a large one.
func TestSizeOfAHole(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "state"))
	if err == nil {
		defer f.Close()
		err = f.Truncate(1 << 43)
	}
	if err != nil {
		t.Skip("there are no such files here:", err)
	}
	if got := SizeOf(f); got != maxStream {
		t.Errorf("it has %d bytes, not %d", got, int64(maxStream))
	}
	if got := SizeOf(compressio.NewSimpleReader(f, nil)); got != maxStream {
		t.Errorf("behind a reader it has %d bytes, not %d", got, int64(maxStream))
	}
}

// Objects may be in the stream long before somebody refers to them: each of these to the one
// before it, and the root to the last. No stack is deep enough to follow them.
func TestLongChainIsNoRecursion(t *testing.T) {
	const n = 1 << 17
	defer debug.SetMaxStack(debug.SetMaxStack(8 << 20))
	h := stream(n)
	h.part(1, map[int]func(){0: h.ref(n)})
	h.part(2, nil)
	for id := uint64(3); id <= n; id++ {
		h.part(id, map[int]func(){0: h.ref(id - 1)})
	}
	root := new(part)
	if _, err := Load(t.Context(), bytes.NewReader(h.Bytes()), root); err == nil || !strings.Contains(err.Error(), "the objects take more than") {
		t.Fatalf("parts of 4 KB for 20 bytes each are %v", err)
	}
	// Of the same chain with less in each there is room.
	links := bytes.ReplaceAll(h.Bytes(), []byte("state.part"), []byte("state.link"))
	first := new(link)
	if _, err := Load(t.Context(), bytes.NewReader(links), first); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for l := first; l != nil; l = l.next {
		seen++
	}
	if seen != n {
		t.Errorf("%d of %d are there", seen, n)
	}
}

// Each of these waits for the next in two ways, and the last two for each other: there are
// 2^60 paths on which one can look for a cycle.
func TestCyclesAreFoundAtOnce(t *testing.T) {
	const n = 60
	h := stream(n)
	h.part(1, map[int]func(){0: h.ref(2)})
	for id := uint64(2); id < n; id++ {
		h.part(id, map[int]func(){1: h.ref(id + 1), 5: func() { h.uints(isInterface, 1, 0, 1, isRef, id+1, 0) }})
	}
	h.part(n, map[int]func(){1: h.ref(n - 1)})
	failed := make(chan error, 1)
	go func() {
		_, err := Load(context.Background(), bytes.NewReader(h.Bytes()), new(part))
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "dependency cycle") {
			t.Errorf("it is %.300v", err)
		}
	case <-time.After(time.Minute):
		t.Error("a cycle is looked for without end")
	}
}

// link is a part that is no larger than what is in the stream.
type link struct{ next *link }

func (*link) StateTypeName() string { return "state.link" }
func (*link) StateFields() []string { return (*part)(nil).StateFields() }
func (l *link) StateSave(Sink)      {}
func (l *link) StateLoad(_ context.Context, s Source) {
	s.Load(0, &l.next)
}

func init() { Register((*link)(nil)) }

// whole is a graph of parts in which each refers to others in all ways that there are.
func whole(n int) *part {
	first := &part{table: map[string]*part{}}
	p := first
	for i := range n {
		p.data = bytes.Repeat([]byte{byte(i)}, i*31%4000+1)
		p.parts = make([]part, 2)
		p.parts[1].next = &p.parts[0]
		p.table = map[string]*part{fmt.Sprint(i): first, "": p}
		p.any = p.data[:1]
		p.wait = &p.parts[0]
		p.next = &part{}
		p = p.next
	}
	return first
}

// Who stops in the midst of a stream leaves nobody who reads on in it.
func TestFailedLoadLeavesNobody(t *testing.T) {
	before := runtime.NumGoroutine()
	var file bytes.Buffer
	if _, err := Save(t.Context(), &file, whole(5000)); err != nil {
		t.Fatal(err)
	}
	spoilt := bytes.Replace(file.Bytes(), []byte("state.part"), []byte("state.none"), 1)
	if _, err := Load(t.Context(), bytes.NewReader(spoilt), new(part)); err == nil {
		t.Fatal("a stream of unknown types is decoded")
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("there were %d goroutines, and are %d", before, runtime.NumGoroutine())
}

func TestSizeOf(t *testing.T) {
	b := bytes.NewReader(make([]byte, 1000))
	for name, c := range map[string]struct {
		r    any
		want int64
	}{
		"bytes":   {b, 1000},
		"nothing": {io.MultiReader(b), 0},
		"a file":  {compressio.NewSimpleReader(file{b}, nil), 1000},
	} {
		if got := SizeOf(c.r); got != c.want {
			t.Errorf("%s have %d bytes, not %d", name, got, c.want)
		}
	}
}

type file struct{ *bytes.Reader }

func (file) Close() error { return nil }
