package telemetry

import "github.com/prometheus/client_golang/prometheus"

// ClusterHost is how a host of a cluster does at one moment, and what it did since its server
// started.
type ClusterHost struct {
	// LeaseAge is how long ago the renewal was sent that came through last, in seconds. From
	// FreezeAge on its sandboxes are frozen.
	LeaseAge, FreezeAge float64
	// Live says that it may act for its sandboxes, and Duty that it works for all.
	Live, Duty bool
	// Freezes is how often its sandboxes were frozen because the lease was in doubt, and
	// GivenUp how many hosts it has given up.
	Freezes, GivenUp int64
	// LostPaused and LostEnded are the sandboxes that ran on hosts which it has given up:
	// paused at a snapshot, and ended.
	LostPaused, LostEnded int64
	// Forwarded, Elsewhere and Unanswered are the requests that it passed on to other hosts:
	// which were answered, not taken, and neither.
	Forwarded, Elsewhere, Unanswered int64
	// Placed are new sandboxes that other hosts were asked for, and Refused those of them
	// that they refused.
	Placed, Refused int64
	// Thaws is how often its sandboxes continued after they had been frozen.
	Thaws int64
}

// Cluster adds the metrics of a host of a cluster. now is asked at each scrape.
func (m *Metrics) Cluster(now func() ClusterHost) {
	gauge := func(name, help string, value func(ClusterHost) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(now()) }))
	}
	count := func(name, help string, value func(ClusterHost) int64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(now())) }))
	}
	gauge("bothy_host_lease_age_seconds", "How long ago this host's lease was renewed.", func(h ClusterHost) float64 { return h.LeaseAge })
	gauge("bothy_host_lease_freeze_seconds", "The age of its lease from which on this host's sandboxes are frozen.", func(h ClusterHost) float64 { return h.FreezeAge })
	gauge("bothy_host_live", "1 while this host may act for its sandboxes, and 0 while they are frozen because its lease was not renewed in time.", func(h ClusterHost) float64 { return oneIf(h.Live) })
	gauge("bothy_host_duty", "1 on the host that sends webhooks and runs agents for all.", func(h ClusterHost) float64 { return oneIf(h.Duty) })
	count("bothy_host_freezes_total", "How often this host's sandboxes were frozen because its lease was not renewed in time.", func(h ClusterHost) int64 { return h.Freezes })
	count("bothy_hosts_given_up_total", "Hosts that this one has given up because they did not renew their leases.", func(h ClusterHost) int64 { return h.GivenUp })
	count("bothy_lost_sandboxes_paused_total", "Sandboxes that ran on hosts which this one has given up, and were paused at a snapshot.", func(h ClusterHost) int64 { return h.LostPaused })
	count("bothy_lost_sandboxes_ended_total", "Sandboxes that ended with hosts which this one has given up.", func(h ClusterHost) int64 { return h.LostEnded })
	count("bothy_forwarded_requests_total", "Requests that were passed on to another host and answered there.", func(h ClusterHost) int64 { return h.Forwarded })
	count("bothy_forwarded_requests_elsewhere_total", "Requests that another host did not take: it had no room, or not what they were about.", func(h ClusterHost) int64 { return h.Elsewhere })
	count("bothy_forwarded_requests_unanswered_total", "Requests that another host did not answer.", func(h ClusterHost) int64 { return h.Unanswered })
	count("bothy_placements_total", "New sandboxes that this host asked others for.", func(h ClusterHost) int64 { return h.Placed })
	count("bothy_placement_refusals_total", "New sandboxes that this host asked others for and that they refused.", func(h ClusterHost) int64 { return h.Refused })
	count("bothy_host_thaws_total", "How often this host's sandboxes continued after they had been frozen because its lease was not renewed in time.", func(h ClusterHost) int64 { return h.Thaws })
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
