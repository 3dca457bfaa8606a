package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/bothy-dev/bothy/engine"
	"github.com/bothy-dev/bothy/engine/process"
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
	dir := filepath.Join(e.dir, id)
	g := e.cgroups.Open(id)
	g.SetFrozen(false)
	pids, _ := g.Processes()
	g.Kill()
	killSentriesOf(dir)
	for _, pid := range pids {
		process.End(pid)
	}
	return errors.Join(g.Remove(), os.RemoveAll(dir))
}

// killSentriesOf ends sentries that were spawned for a folder but had not yet
// been put into its cgroup.
func killSentriesOf(dir string) {
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range procs {
		b, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(b), "\x00--bundle="+dir+"\x00") {
			continue
		}
		pid := 0
		for _, c := range strings.Split(f, "/")[2] {
			pid = pid*10 + int(c-'0')
		}
		process.End(pid)
	}
}
