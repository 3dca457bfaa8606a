package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Losses is what this server did about sandboxes that lost their host, and against it.
type Losses struct {
	// CheckpointsTaken, CheckpointsSkipped and CheckpointsFailed are checkpoints of sandboxes, and
	// OldestSeconds how long ago the state of one was last saved, where that is longest.
	CheckpointsTaken, CheckpointsSkipped, CheckpointsFailed int64
	OldestSeconds                                           float64

	// Resumed are those that it resumed, Failures the attempts that failed, and LeftPaused
	// the sandboxes for which there is no further one.
	Resumed, Failures, LeftPaused int64
}

// Losses adds the metrics of sandboxes that lost their host. now is asked at each scrape.
func (m *Metrics) Losses(now func() Losses) {
	count := func(name, help string, value func(Losses) int64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(now())) }))
	}
	count("bothy_checkpoints_total", "Checkpoints of sandboxes that were taken.", func(l Losses) int64 { return l.CheckpointsTaken })
	count("bothy_checkpoints_skipped_total", "Checkpoints of sandboxes that were not needed, because nothing had happened.", func(l Losses) int64 { return l.CheckpointsSkipped })
	count("bothy_checkpoints_failed_total", "Checkpoints of sandboxes that could not be taken.", func(l Losses) int64 { return l.CheckpointsFailed })
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "bothy_checkpoint_oldest_seconds",
		Help: "How old the last checkpoint is of the sandbox for which it is oldest, of those with checkpoints; 0 where there are none."}, func() float64 { return now().OldestSeconds }))
	count("bothy_lost_sandboxes_resumed_total", "Sandboxes that lost their host and were resumed here.", func(l Losses) int64 { return l.Resumed })
	count("bothy_lost_sandboxes_resume_failures_total", "Attempts to resume sandboxes that lost their host, here, that failed.", func(l Losses) int64 { return l.Failures })
	count("bothy_lost_sandboxes_left_paused_total", "Sandboxes that lost their host and stay paused after the last attempt to resume them.", func(l Losses) int64 { return l.LeftPaused })
}
