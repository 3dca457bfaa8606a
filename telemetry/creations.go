package telemetry

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bothy-dev/bothy"
)

// creationRoute is the label of requests that create a sandbox.
const creationRoute = "POST /v1/sandboxes"

// Creations tells how long requests to create a sandbox took, as a histogram.
func (m *Metrics) Creations() []bothy.HostCreation {
	only := prometheus.NewPedanticRegistry()
	only.MustRegister(m.seconds)
	families, err := only.Gather()
	list := []bothy.HostCreation{}
	if err != nil {
		return list
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				if l.GetName() != "route" || l.GetValue() != creationRoute {
					continue
				}
				below := uint64(0)
				for _, b := range series.GetHistogram().GetBucket() {
					if end := b.GetUpperBound(); !math.IsInf(end, 1) {
						list = append(list, bothy.HostCreation{UpToSeconds: &end, Count: int64(b.GetCumulativeCount() - below)})
						below = b.GetCumulativeCount()
					}
				}
				list = append(list, bothy.HostCreation{Count: int64(series.GetHistogram().GetSampleCount() - below)})
			}
		}
	}
	return list
}
