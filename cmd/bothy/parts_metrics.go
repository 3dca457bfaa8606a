package main

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/telemetry"
)

// census counts what the server has, for its metrics.
func (p *parts) census(ctx context.Context) (telemetry.Census, error) {
	pool := p.lifecycle.Pool(ctx)
	c := telemetry.Census{
		Sandboxes: map[bothy.State]int{}, FreeMemoryBytes: p.lifecycle.FreeMemoryBytes(), UsageUnwritten: p.meter.Unwritten(),
		Pooled: pool.Ready, PooledBytes: pool.MemoryBytes, Spares: pool.Spares, Golden: pool.Golden, GoldenBytes: pool.GoldenBytes,
	}
	alive, err := p.store.SandboxesInState(ctx, bothy.LiveStates...)
	if err != nil {
		return c, err
	}
	for _, sb := range alive {
		c.Sandboxes[sb.State]++
	}
	snapshots, err := p.store.AllSnapshots(ctx)
	for _, n := range snapshots {
		c.Snapshots++
		c.SnapshotBytes += n.SizeBytes
	}
	return c, err
}

// openMetrics answers scrapes: those of this host, and of those who bring a key.
func (p *parts) openMetrics() {
	h := p.metrics.Handler()
	guarded := p.api.Authenticated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := bothy.RequireOperator(r.Context(), bothy.ScopeAdmin); err != nil {
			http.Error(w, bothy.AsError(err).Detail, http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	}))
	p.api.Handle("GET /metrics", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fromHere(r) {
			h.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	}))
}

// fromHere reports whether a program of this host asks for itself, and not a
// proxy for somebody else.
func fromHere(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}
