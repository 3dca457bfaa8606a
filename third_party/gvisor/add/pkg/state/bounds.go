package state

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"reflect"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/state/wire"
)

// A stream is not trusted to say how much memory the objects take that are in it. A few of
// its bytes announce an object, or a slice of any capacity, for which memory is needed
// before its content is read. All of that together is bounded by the stream's size.
const (
	// memoryFactor is how much memory objects may take for each byte of the stream. The
	// kernel's take up to 7.
	memoryFactor = 32

	// memoryAtLeast is what the objects of a short stream may take.
	memoryAtLeast = 16 << 20

	// unknownSize stands for the size of a stream where nobody knows it.
	unknownSize = 64 << 20

	// objectBytes and typeBytes are what an object costs beside its value, and a type that
	// is made of another beside its name.
	objectBytes = 160
	typeBytes   = 256

	// mapBytes is what the type of a map costs, which has further types in it, and mapNames
	// how often the names of its key's and its element's type are in those.
	mapBytes = 4 << 10
	mapNames = 24

	// maxStream bounds what a stream's size allows. A file with a hole may have any size.
	maxStream = 8 << 30

	// maxCycle is how many objects of a cycle are named.
	maxCycle = 20

	// maxGap is by how much the id of an object may exceed the number of objects: those
	// that were found to be part of another one leave gaps.
	maxGap = 1 << 16
)

// bounds are what is left of what a stream may take.
type bounds struct {
	// all is how much memory the objects may take, and memory what is left of it.
	all, memory int64

	// maxID is the highest id that an object can have, and lastID that of the latest one
	// in the stream.
	maxID, lastID objectID

	// composed are the types that the stream has made of others. What is made once is kept
	// for as long as this process lives.
	composed map[composition]reflect.Type
}

// composition is how a type is made of one or two others.
type composition struct {
	kind     reflect.Kind
	of, also reflect.Type
}

// compose returns the type that is made of others, if the stream may have one more.
func (ds *decodeState) compose(c composition) reflect.Type {
	if t := ds.bounds.composed[c]; t != nil {
		return t
	}
	var t reflect.Type
	switch c.kind {
	case reflect.Map:
		ds.take(mapBytes + mapNames*uintptr(len(c.of.String())+len(c.also.String())))
		t = reflect.MapOf(c.of, c.also)
	case reflect.Slice:
		ds.takeType(c.of)
		t = reflect.SliceOf(c.of)
	default:
		ds.takeType(c.of)
		t = reflect.PointerTo(c.of)
	}
	if ds.bounds.composed == nil {
		ds.bounds.composed = map[composition]reflect.Type{}
	}
	ds.bounds.composed[c] = t
	return t
}

// SizeOf returns how many bytes can be read from r at most, or 0 if that is not known. It is
// never more than what streams are allowed to be.
func SizeOf(r any) int64 { return min(sizeOf(r), maxStream) }

func sizeOf(r any) int64 {
	switch r := r.(type) {
	case interface{ Source() (any, int64) }:
		source, times := r.Source()
		return SizeOf(source) * times
	case interface{ Len() int }:
		return int64(r.Len())
	case interface{ FD() int }:
		var st unix.Stat_t
		if err := unix.Fstat(r.FD(), &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return st.Size
		}
	case interface{ Stat() (fs.FileInfo, error) }:
		if st, err := r.Stat(); err == nil && st.Mode().IsRegular() {
			return st.Size()
		}
	}
	return 0
}

// bound sets the bounds for a stream of so many bytes.
func (ds *decodeState) bound(size int64) {
	ds.r.Size = size
	if size == 0 {
		size = unknownSize
	}
	ds.bounds.all = memoryAtLeast + memoryFactor*size
	ds.bounds.memory = ds.bounds.all
	ds.bounds.maxID = 1 // for the root
}

// expect checks the number of objects, each of which takes two bytes at least.
func (ds *decodeState) expect(numObjects uint64) {
	size := ds.r.Size
	if size == 0 {
		size = unknownSize
	}
	if numObjects > uint64(size)/2 {
		Failf("%d objects in a stream of %d bytes", numObjects, size)
	}
	ds.bounds.maxID = objectID(min(2*numObjects+maxGap, 1<<31))
}

// take accounts for memory before it is allocated.
func (ds *decodeState) take(bytes uintptr) {
	if ds.bounds.memory -= int64(min(bytes, 1<<48)); ds.bounds.memory < 0 {
		Failf("the objects take more than %d bytes for each of the stream's", memoryFactor)
	}
}

// takeType accounts for a type that is made of another.
func (ds *decodeState) takeType(of reflect.Type) { ds.take(typeBytes + 2*uintptr(len(of.String()))) }

// arrayOf returns the type of an array, if there may be one as large.
func (ds *decodeState) arrayOf(count wire.Uint, elem reflect.Type) reflect.Type {
	size := max(1, uint64(elem.Size()))
	if uint64(count) > uint64(ds.bounds.all)/size {
		Failf("an array of %d times %v is larger than the stream allows", count, elem)
	}
	ds.takeType(elem)
	return reflect.ArrayOf(int(count), elem)
}

// checkID returns the id of an object, if there can be one with it.
func (ds *decodeState) checkID(id wire.Uint) objectID {
	if id == 0 || id > wire.Uint(ds.bounds.maxID) {
		Failf("there can be no object with the id %d, the highest is %d", id, ds.bounds.maxID)
	}
	return objectID(id)
}

// nextID checks the id of an object that is next in the stream: they are in order, and so
// there is one at most with each.
func (ds *decodeState) nextID(id wire.Uint) objectID {
	next := ds.checkID(id)
	if next <= ds.bounds.lastID {
		Failf("object %d comes after object %d", next, ds.bounds.lastID)
	}
	ds.bounds.lastID = next
	return next
}

// checkTypeID returns the number of a type, if there can be one with it.
func checkTypeID(id wire.TypeID) typeID {
	if id == 0 || id > 1<<31 {
		Failf("there can be no type with the id %d", id)
	}
	return typeID(id)
}

// arrived is an object that was read before anything referred to it.
type arrived struct {
	ods     *objectDecodeState
	encoded wire.Object
}

// decodeArrived decodes the objects that were referred to meanwhile, and those to which
// they refer. It is no recursion: the stream says how long such a chain is.
func (ds *decodeState) decodeArrived() {
	for len(ds.arrived) > 0 {
		last := len(ds.arrived) - 1
		a := ds.arrived[last]
		ds.arrived = ds.arrived[:last]
		ds.decodeObject(a.ods, a.ods.obj, a.encoded)
	}
}

// checkArrived fails if an object is referred to that was not in the stream.
func (ds *decodeState) checkArrived() {
	for i, ods := range ds.objectsByID {
		if ods != nil && !ods.arrived {
			Failf("object %d (%v) is missing", i+1, ods.obj.Type())
		}
	}
}

// findCycle returns the types of objects that wait for each other, or none.
func (ds *decodeState) findCycle() []reflect.Type {
	for e := ds.pending.Front(); e != nil; e = e.Next() {
		if cycle := e.ods.findCycle(); cycle != nil {
			return cycle
		}
	}
	return nil
}

// The states of a search for a cycle.
const (
	unsearched = iota
	onPath
	searched
)

// findCycle finds a cycle among the objects that wait for this one. The stream says how
// many chains of them there are, and how long: each is looked at once, and without recursion.
func (ods *objectDecodeState) findCycle() []reflect.Type {
	type step struct {
		ods  *objectDecodeState
		next int // of its callbacks
	}
	ods.search = onPath
	path := []step{{ods: ods}}
	for len(path) > 0 {
		last := &path[len(path)-1]
		if last.next == len(last.ods.callbacks) {
			last.ods.search = searched
			path = path[:len(path)-1]
			continue
		}
		other := last.ods.callbacks[last.next].source()
		last.next++
		switch {
		case other == nil || other.search == searched:
		case other.search == unsearched:
			other.search = onPath
			path = append(path, step{ods: other})
		default:
			types := []reflect.Type{other.obj.Type()}
			for i := len(path) - 1; len(types) <= maxCycle && path[i].ods != other; i-- {
				types = append(types, path[i].ods.obj.Type())
			}
			return types
		}
	}
	return nil
}

// describe says what a value is, without its content, which may be long.
func describe(o wire.Object) string {
	switch o := o.(type) {
	case *wire.Struct:
		return fmt.Sprintf("%T of type %d with %d fields", o, o.TypeID, o.Fields())
	case *wire.Array:
		return fmt.Sprintf("%T of %d", o, len(o.Contents))
	case *wire.Map:
		return fmt.Sprintf("%T of %d", o, len(o.Keys))
	case *wire.String:
		return fmt.Sprintf("%T of %d bytes", o, len(*o))
	case *wire.Ref:
		return fmt.Sprintf("%T to %d", o, o.Root)
	}
	return fmt.Sprintf("%T", o)
}

// Check decodes as Load does, but runs none of the functions that objects have for when
// they are loaded. For tests.
func Check(ctx context.Context, r io.Reader, rootPtr any) error {
	ds := decodeState{
		ctx:      ctx,
		r:        wire.Reader{Reader: readBuffer(r)},
		types:    makeTypeDecodeDatabase(),
		deferred: make(map[objectID]wire.Object),
		inert:    true,
	}
	ds.bound(SizeOf(r))
	return safely(func() { ds.Load(reflect.ValueOf(rootPtr).Elem()) })
}
