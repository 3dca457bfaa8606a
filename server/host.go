package server

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/engine"
)

// findingsAge is how long findings are cached. The checks create files, groups and devices to
// see that they can.
const findingsAge = time.Minute

// host implements bothy.HostService.
type host struct {
	server *Server

	mu       sync.Mutex
	at       time.Time
	findings []bothy.HostFinding
}

// Host implements bothy.HostService.
func (h *host) Host(ctx context.Context) (*bothy.Host, error) {
	if _, err := bothy.RequireOperator(ctx, bothy.ScopeAdmin); err != nil {
		return nil, err
	}
	s := h.server
	c, err := s.census(ctx)
	if err != nil {
		return nil, err
	}
	a := &bothy.Host{
		Version: s.version, CPUs: runtime.NumCPU(), FreeMemoryBytes: c.FreeMemoryBytes, Sandboxes: map[string]int{},
		Pool:    bothy.HostPool{Ready: c.Pooled, MemoryBytes: c.PooledBytes, Spares: c.Spares, Golden: c.Golden, GoldenBytes: c.GoldenBytes, Contents: s.lifecycle.PoolContents()},
		Engines: s.lifecycle.Engines(), Creations: s.metrics.Creations(),
	}
	for state, n := range c.Sandboxes {
		a.Sandboxes[string(state)] = n
	}
	if most := s.config.Sandboxes.Max; most > 0 {
		a.MaxSandboxes = &most
	}
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		return nil, err
	}
	a.MemoryBytes = int64(memory.Totalram) * int64(memory.Unit)
	var disk unix.Statfs_t
	if err := unix.Statfs(s.config.Home, &disk); err != nil {
		return nil, err
	}
	a.DiskBytes, a.FreeDiskBytes = int64(disk.Blocks)*disk.Bsize, int64(disk.Bavail)*disk.Bsize
	a.Findings = h.look(ctx)
	return a, nil
}

// look returns what the checks found. Concurrent callers share one run.
func (h *host) look(ctx context.Context) []bothy.HostFinding {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.findings != nil && time.Since(h.at) < findingsAge {
		return h.findings
	}
	s := h.server
	d := doctor.NewHost(s.config.Home, s.config.Templates, s.config.Listen)
	d.Orphans = func() (names []string, err error) {
		orphans, err := engine.Orphans()
		for _, o := range orphans {
			names = append(names, o.Folder)
		}
		return names, err
	}
	found := []bothy.HostFinding{}
	for _, problem := range s.problems() {
		found = append(found, bothy.HostFinding{Name: "server", Status: string(doctor.Warn), Detail: problem})
	}
	// Other callers wait for this run, so it must not end with the first caller's context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	doctor.Run(ctx, d.RunningChecks(), func(r doctor.Result) {
		found = append(found, bothy.HostFinding{Name: r.Name, Status: string(r.Status), Detail: r.Detail, Fix: r.Fix})
	})
	h.findings, h.at = found, time.Now()
	return found
}
