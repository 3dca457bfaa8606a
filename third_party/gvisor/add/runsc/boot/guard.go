package boot

import (
	"fmt"
	"runtime"

	"gvisor.dev/gvisor/pkg/log"
)

// guarded calls load, and turns a panic into an error: a state that this kernel did not write
// may violate its invariants.
func guarded(load func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			trace := make([]byte, 16<<10)
			trace = trace[:runtime.Stack(trace, false)]
			log.Warningf("loading the state panicked: %v\n%s", p, trace)
			err = fmt.Errorf("the state is not one of this kernel's: %v", p)
		}
	}()
	return load()
}
