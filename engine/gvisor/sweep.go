package gvisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine"
)

var _ bothy.MachineNamer = (*Engine)(nil)

// MachineName is the name of its preparedSentry. A sandbox that was rolled back, or made from a
// spare, runs in a machine with another name, and a leftover machine may have the sandbox's own.
func (e *Engine) MachineName(id string, b []byte) string {
	var st state
	if json.Unmarshal(b, &st) != nil {
		return id
	}
	return cmp.Or(st.Name, id)
}

// Sweep removes leftovers of machines without an owner. Namespaces and taps
// need no sweeping: they disappear with the last process in them.
func (e *Engine) Sweep(_ context.Context, keep func(name string) bool) ([]string, error) {
	owned := func(name string) bool {
		e.mu.Lock()
		held := e.held[name]
		e.mu.Unlock()
		return held || keep(name)
	}
	return engine.Sweep(e.cgroups, e.dir, owned, e.sweepOne)
}

func (e *Engine) sweepOne(name string) error {
	g := e.cgroups.Open(name)
	g.SetFrozen(false)
	return errors.Join(g.End(), g.Remove(), os.RemoveAll(filepath.Join(e.dir, name)))
}
