package server

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/telemetry"
)

// census counts what the server has, for its metrics.
func (s *Server) census(ctx context.Context) (telemetry.Census, error) {
	pool := s.lifecycle.Pool(ctx)
	c := telemetry.Census{
		Sandboxes: map[bothy.State]int{}, FreeMemoryBytes: s.lifecycle.FreeMemoryBytes(), UsageUnwritten: s.meter.Unwritten(),
		Pooled: pool.Ready, PooledBytes: pool.MemoryBytes, Spares: pool.Spares, Golden: pool.Golden, GoldenBytes: pool.GoldenBytes,
	}
	if s.inflight != nil {
		c.Inflight = s.held()
	}
	// Of a cluster each host counts its own.
	alive, err := s.store.OwnSandboxesInState(ctx, bothy.LiveStates...)
	if err != nil {
		return c, err
	}
	for _, sb := range alive {
		c.Sandboxes[sb.State]++
	}
	c.Snapshots, c.SnapshotBytes, err = s.store.SnapshotSum(ctx, "")
	return c, err
}

// losses tells what became of sandboxes that lost their host.
func (s *Server) losses() telemetry.Losses {
	lost, points := s.lifecycle.Lost(), s.lifecycle.Checkpoints()
	return telemetry.Losses{
		Resumed: lost.Resumed, Failures: lost.Failed, LeftPaused: lost.GivenUp,
		CheckpointsTaken: points.Taken, CheckpointsSkipped: points.Skipped, CheckpointsFailed: points.Failed, OldestSeconds: points.Oldest.Seconds(),
	}
}

// openMetrics answers scrapes of those who bring a key for it. Where a request
// comes from proves nothing: it may have come through a proxy.
func (s *Server) openMetrics() error {
	h := s.metrics.Handler()
	s.api.Handle("GET /metrics", s.api.Authenticated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := bothy.RequireOperator(r.Context(), bothy.ScopeMetricsRead); err != nil {
			http.Error(w, bothy.AsError(err).Detail, http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})))
	return s.listenForMetrics(h)
}

// listenForMetrics opens the listener on which metrics need no key.
func (s *Server) listenForMetrics(h http.Handler) error {
	if s.config.MetricsListen == "" {
		return nil
	}
	l, err := net.Listen("tcp", s.config.MetricsListen)
	if err != nil {
		return bothy.Errorf(bothy.CodeConflict, "the address %s (metrics_listen) cannot be listened on", s.config.MetricsListen).
			WithHint("Stop what listens there, or choose another address.").Because(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	plain := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10}
	s.undo.Add(func() { plain.Close() })
	s.log.Info("metrics", "listen", l.Addr().String())
	go func() { _ = plain.Serve(l) }()
	return nil
}
