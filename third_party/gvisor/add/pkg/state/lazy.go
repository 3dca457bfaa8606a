package state

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"gvisor.dev/gvisor/pkg/tuning"
)

// registered are the types that were given to Register and are not in the tables yet. As
// long as there is room they are not moved.
var (
	registered = room[:0]
	room       [2 << 10]Type
)

// filled is set once types are registered at once.
var filled = !tuning.On("late-types")

// fill registers what was kept for later.
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

// later keeps a type for fill, if that is still to come.
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
