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

// A stream is not trusted about the memory that its objects take. A few bytes can announce an
// object or a slice of any capacity, for which memory is allocated before its content is read.
// The total is limited by the stream's size.
const (
	// memoryFactor is how many bytes of memory objects may take for each byte of the stream.
	// The kernel's take up to 7.
	memoryFactor = 32

	// memoryAtLeast is how much the objects of a short stream may take.
	memoryAtLeast = 16 << 20

	// unknownSize is the assumed size of a stream of unknown size.
	unknownSize = 64 << 20

	// objectBytes and typeBytes are the cost of an object in addition to its value, and of a
	// composed type in addition to its name.
	objectBytes = 160
	typeBytes   = 256

	// mapBytes is the cost of a map type, which contains further types, and mapNames is how
	// often those contain the names of its key and element types.
	mapBytes = 4 << 10
	mapNames = 24

	// maxStream limits the size of a stream that counts. A file with holes may have any size.
	maxStream = 8 << 30

	// maxCycle is how many objects of a cycle an error names.
	maxCycle = 20

	// maxGap is by how much the id of an object may exceed the number of objects: objects
	// that are part of another one leave gaps.
	maxGap = 1 << 16
)

// bounds is the remaining allowance of a stream.
type bounds struct {
	// all is how much memory the objects may take, and memory how much of it is left.
	all, memory int64

	// maxID is the highest valid id of an object, and lastID the id of the latest object in
	// the stream.
	maxID, lastID objectID

	// composed are the types that the stream has composed of others. The runtime keeps them
	// for the life of the process.
	composed map[composition]reflect.Type
}

// composition describes a type that is composed of one or two others.
type composition struct {
	kind     reflect.Kind
	of, also reflect.Type
}

// compose returns a composed type, if the stream may have one more.
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

// SizeOf returns how many bytes can be read from r at most, up to the limit of streams, or 0 if
// that is unknown.
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

// bound sets the bounds for a stream of size bytes.
func (ds *decodeState) bound(size int64) {
	ds.r.Size = size
	if size == 0 {
		size = unknownSize
	}
	ds.bounds.all = memoryAtLeast + memoryFactor*size
	ds.bounds.memory = ds.bounds.all
	ds.bounds.maxID = 1 // for the root
}

// expect checks the number of objects, each of which takes at least two bytes.
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

// takeType accounts for a composed type.
func (ds *decodeState) takeType(of reflect.Type) { ds.take(typeBytes + 2*uintptr(len(of.String()))) }

// arrayOf returns the type of an array, if its size is allowed.
func (ds *decodeState) arrayOf(count wire.Uint, elem reflect.Type) reflect.Type {
	size := max(1, uint64(elem.Size()))
	if uint64(count) > uint64(ds.bounds.all)/size {
		Failf("an array of %d times %v is larger than the stream allows", count, elem)
	}
	ds.takeType(elem)
	return reflect.ArrayOf(int(count), elem)
}

// checkID returns the id of an object, if it is valid.
func (ds *decodeState) checkID(id wire.Uint) objectID {
	if id == 0 || id > wire.Uint(ds.bounds.maxID) {
		Failf("there can be no object with the id %d, the highest is %d", id, ds.bounds.maxID)
	}
	return objectID(id)
}

// nextID checks the id of the next object in the stream. Ids are in order, and so unique.
func (ds *decodeState) nextID(id wire.Uint) objectID {
	next := ds.checkID(id)
	if next <= ds.bounds.lastID {
		Failf("object %d comes after object %d", next, ds.bounds.lastID)
	}
	ds.bounds.lastID = next
	return next
}

// checkTypeID returns the number of a type, if it is valid.
func checkTypeID(id wire.TypeID) typeID {
	if id == 0 || id > 1<<31 {
		Failf("there can be no type with the id %d", id)
	}
	return typeID(id)
}

// arrived is an object that was read before any reference to it.
type arrived struct {
	ods     *objectDecodeState
	encoded wire.Object
}

// decodeArrived decodes the objects that are referred to by now, and those to which they
// refer. It does not recurse, since the stream decides how long such a chain is.
func (ds *decodeState) decodeArrived() {
	for len(ds.arrived) > 0 {
		last := len(ds.arrived) - 1
		a := ds.arrived[last]
		ds.arrived = ds.arrived[:last]
		ds.decodeObject(a.ods, a.ods.obj, a.encoded)
	}
}

// checkArrived fails if a referenced object is missing from the stream.
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

// findCycle finds a cycle among the objects that wait for this one. The stream decides how
// many chains there are and how long they are, so each object is visited once, without
// recursion.
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

// describe describes a value without its content, which may be long.
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

// Check decodes as Load does, without the functions that objects run after loading. For
// tests.
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
