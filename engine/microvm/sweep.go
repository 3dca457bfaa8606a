package microvm

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/bothy-dev/bothy/engine"
)

// Sweep removes leftovers of machines without an owner. Namespaces and mounts need no
// sweeping: they disappear with the last process in them, and a process that was not
// yet in its cgroup ends by itself without its server.
func (e *Engine) Sweep(_ context.Context, keep func(id string) bool) ([]string, error) {
	owned := func(id string) bool { return strings.HasPrefix(id, ".") || e.holds(id) || keep(id) }
	return engine.Sweep(e.cgroups, e.o.Dir, owned, e.sweepOne)
}

func (e *Engine) sweepOne(id string) error {
	g := e.cgroups.Open(id)
	return errors.Join(g.End(), g.Remove(), os.RemoveAll(e.dir(id)))
}
