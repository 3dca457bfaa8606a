package state

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"gvisor.dev/gvisor/pkg/tuning"
)

// registered are the types that were passed to Register and are not in the tables yet.
var (
	registered = room[:0]
	room       [2 << 10]Type
)

// filled is set once types are registered immediately.
var filled = !tuning.On("late-types")

// fill registers the types that were deferred.
var fill = sync.OnceFunc(func() {
	if filled {
		return
	}
	filled = true
	types := registered
	registered = nil
	globalTypeDatabase = make(map[string]reflect.Type, len(types))
	for _, t := range types {
		Register(t)
	}
})

// later defers a type to fill, unless that was called.
func later(t Type) bool {
	if filled {
		return false
	}
	registered = append(registered, t)
	return true
}

// Types returns the types that are registered.
func Types() []reflect.Type {
	fill()
	return slices.Collect(maps.Values(globalTypeDatabase))
}
