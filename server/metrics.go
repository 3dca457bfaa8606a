package server

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/telemetry"
)

// census collects the server's current counts for its metrics.
func (s *Server) census(ctx context.Context) (telemetry.Census, error) {
	pool := s.lifecycle.Pool(ctx)
	c := telemetry.Census{
		Sandboxes: map[bothy.State]int{}, FreeMemoryBytes: s.lifecycle.FreeMemoryBytes(), UsageUnwritten: s.meter.Unwritten(),
		Pooled: pool.Ready, PooledBytes: pool.MemoryBytes, Spares: pool.Spares, Golden: pool.Golden, GoldenBytes: pool.GoldenBytes,
	}
	if s.inflight != nil {
		c.Inflight = s.held()
	}
	// Each host of a cluster reports its own sandboxes.
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

// losses reports the outcome for sandboxes that lost their host.
func (s *Server) losses() telemetry.Losses {
	lost, points := s.lifecycle.Lost(), s.lifecycle.Checkpoints()
	return telemetry.Losses{
		Resumed: lost.Resumed, Failures: lost.Failed, LeftPaused: lost.GivenUp,
		CheckpointsTaken: points.Taken, CheckpointsSkipped: points.Skipped, CheckpointsFailed: points.Failed, OldestSeconds: points.Oldest.Seconds(),
	}
}

// openMetrics serves /metrics to callers with a key that allows it. The remote address is not
// enough: the request may have come through a proxy.
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

// listenForMetrics opens the optional listener that serves metrics without a key.
func (s *Server) listenForMetrics(h http.Handler) error {
	if s.config.MetricsListen == "" {
		return nil
	}
	l, err := net.Listen("tcp", s.config.MetricsListen)
	if err != nil {
		return bothy.Errorf(bothy.CodeConflict, "cannot listen on %s (metrics_listen)", s.config.MetricsListen).
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
