package state

import "gvisor.dev/gvisor/pkg/state/wire"

// readAhead is what was read of a stream and not asked for yet.
type readAhead struct {
	batches chan objectBatch
	now     objectBatch
}

type objectBatch struct {
	objects []wire.Object
	failed  any // what the reading of the next one panicked with
}

const (
	batchSize    = 64
	batchesAhead = 32
)

// next returns the next object of a stream in which so many have a number.
func (ds *decodeState) next(numbered uint64) wire.Object {
	a := &ds.ahead
	if a.batches == nil {
		a.batches = make(chan objectBatch, batchesAhead)
		go a.read(&ds.r, numbered)
	}
	for len(a.now.objects) == 0 {
		if a.now.failed != nil {
			panic(a.now.failed)
		}
		a.now = <-a.batches
	}
	o := a.now.objects[0]
	a.now.objects = a.now.objects[1:]
	return o
}

// read ends with the last object, because what follows in the file is another stream.
func (a *readAhead) read(r *wire.Reader, numbered uint64) {
	var b objectBatch
	defer func() {
		b.failed = recover()
		a.batches <- b
	}()
	for numbered > 0 {
		if len(b.objects) >= batchSize {
			a.batches <- b
			b = objectBatch{objects: make([]wire.Object, 0, batchSize+1)}
		}
		o := wire.Load(r)
		b.objects = append(b.objects, o)
		if _, ok := o.(wire.Uint); ok {
			b.objects = append(b.objects, wire.Load(r))
			numbered--
		}
	}
}
