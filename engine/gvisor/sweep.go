package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy/engine"
)

// Sweep removes what is left of machines that nobody owns. Namespaces and taps
// need no sweeping: they end with the last process in them.
func (e *Engine) Sweep(_ context.Context, keep func(id string) bool) ([]string, error) {
	owned := func(id string) bool {
		e.mu.Lock()
		held := e.held[id]
		e.mu.Unlock()
		return held || keep(id)
	}
	return engine.Sweep(e.cgroups, e.dir, owned, e.sweepOne)
}

func (e *Engine) sweepOne(id string) error {
	g := e.cgroups.Open(id)
	g.SetFrozen(false)
	return errors.Join(g.End(), g.Remove(), os.RemoveAll(filepath.Join(e.dir, id)))
}
