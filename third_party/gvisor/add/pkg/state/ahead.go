package state

import (
	"gvisor.dev/gvisor/pkg/state/wire"
	"gvisor.dev/gvisor/pkg/tuning"
)

// readAhead is the part of a stream that was read ahead.
type readAhead struct {
	batches chan objectBatch
	stop    chan struct{}
	now     objectBatch
}

type objectBatch struct {
	objects []wire.Object
	failed  any // the panic of the reader of the next object
}

const (
	batchSize    = 64
	batchesAhead = 32
)

var aheadOn = tuning.On("read-ahead")

// next returns the next object of a stream with the given number of objects.
func (ds *decodeState) next(numbered uint64) wire.Object {
	if !aheadOn {
		return wire.Load(&ds.r)
	}
	a := &ds.ahead
	if a.batches == nil {
		a.batches, a.stop = make(chan objectBatch, batchesAhead), make(chan struct{})
		go a.read(&ds.r, numbered)
	}
	for len(a.now.objects) == 0 {
		if a.now.failed != nil {
			panic(a.now.failed)
		}
		var more bool
		if a.now, more = <-a.batches; !more {
			Failf("the stream has fewer objects than it says")
		}
	}
	o := a.now.objects[0]
	a.now.objects = a.now.objects[1:]
	return o
}

// end stops reading ahead, and waits until the caller may use the stream again.
func (a *readAhead) end() {
	if a.batches == nil {
		return
	}
	close(a.stop)
	for range a.batches {
	}
}

// read ends with the last object, because another stream follows in the file.
func (a *readAhead) read(r *wire.Reader, numbered uint64) {
	var b objectBatch
	defer close(a.batches)
	defer func() {
		b.failed = recover()
		a.pass(b)
	}()
	for numbered > 0 {
		if len(b.objects) >= batchSize {
			if !a.pass(b) {
				return
			}
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

// pass hands a batch over, unless reading was ended.
func (a *readAhead) pass(b objectBatch) bool {
	select {
	case a.batches <- b:
		return true
	case <-a.stop:
		return false
	}
}
