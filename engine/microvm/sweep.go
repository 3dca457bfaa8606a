package microvm

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy/engine/process"
)

// Sweep removes what is left of machines that nobody owns. Namespaces and mounts need
// no sweeping: they end with the last process in them, and a process that was not yet
// in its cgroup ends by itself without its server.
func (e *Engine) Sweep(_ context.Context, keep func(id string) bool) ([]string, error) {
	found := map[string]bool{}
	groups, err := e.cgroups.List()
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		found[g] = true
	}
	entries, err := os.ReadDir(e.o.Dir)
	if err != nil {
		return nil, err
	}
	for _, d := range entries {
		if d.IsDir() && !strings.HasPrefix(d.Name(), ".") {
			found[d.Name()] = true
		}
	}
	var swept []string
	var errs []error
	for id := range found {
		if e.holds(id) || keep(id) {
			continue
		}
		errs = append(errs, e.sweepOne(id))
		swept = append(swept, id)
	}
	slices.Sort(swept)
	return swept, errors.Join(errs...)
}

func (e *Engine) sweepOne(id string) error {
	g := e.cgroups.Open(id)
	pids, _ := g.Processes()
	g.Kill()
	for _, pid := range pids {
		process.End(pid)
	}
	return errors.Join(g.Remove(), os.RemoveAll(e.dir(id)))
}
