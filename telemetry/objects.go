package telemetry

import "github.com/prometheus/client_golang/prometheus"

// ObjectStorage is how a server does with its object storage at one moment, and what it did
// there since it started.
type ObjectStorage struct {
	// Available says that the storage answered when it was asked last, and is this server's.
	Available bool
	Kinds     []ObjectKind
}

// ObjectKind is one kind of what is carried there, such as snapshots.
type ObjectKind struct {
	Kind string
	// Pending are on their way, and Oldest is for how long one of them has been, in seconds.
	Pending int
	Oldest  float64
	// Uploads and Fetches are those that came to their end, and the bytes are what was sent for
	// them. What failed is tried again, or was an error for who wanted it.
	Uploads, UploadFailures, UploadBytes int64
	Fetches, FetchFailures, FetchBytes   int64
}

// ObjectStorage adds the metrics of object storage. now is asked once for each scrape.
func (m *Metrics) ObjectStorage(now func() ObjectStorage) {
	m.registry.MustRegister(&objectCollector{now})
}

type objectCollector struct{ now func() ObjectStorage }

var availableDesc = prometheus.NewDesc("bothy_object_storage_available", "1 while the object storage answers and is this server's.", nil, nil)

// objectMetrics are those of each kind.
var objectMetrics = []struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(ObjectKind) float64
}{
	{objectDesc("bothy_uploads_pending", "What is on its way to the object storage."), prometheus.GaugeValue, func(k ObjectKind) float64 { return float64(k.Pending) }},
	{objectDesc("bothy_upload_oldest_seconds", "For how long the oldest of what is on its way has been."), prometheus.GaugeValue, func(k ObjectKind) float64 { return k.Oldest }},
	{objectDesc("bothy_uploads_total", "What has come to the object storage."), prometheus.CounterValue, func(k ObjectKind) float64 { return float64(k.Uploads) }},
	{objectDesc("bothy_upload_failures_total", "Attempts to carry something to the object storage that failed."), prometheus.CounterValue, func(k ObjectKind) float64 { return float64(k.UploadFailures) }},
	{objectDesc("bothy_upload_bytes_total", "Bytes of what has come to the object storage, as they lie there."), prometheus.CounterValue, func(k ObjectKind) float64 { return float64(k.UploadBytes) }},
	{objectDesc("bothy_fetches_total", "What was fetched from the object storage."), prometheus.CounterValue, func(k ObjectKind) float64 { return float64(k.Fetches) }},
	{objectDesc("bothy_fetch_failures_total", "What could not be fetched from the object storage."), prometheus.CounterValue, func(k ObjectKind) float64 { return float64(k.FetchFailures) }},
	{objectDesc("bothy_fetch_bytes_total", "Bytes of what was fetched from the object storage, as they lie there."), prometheus.CounterValue, func(k ObjectKind) float64 { return float64(k.FetchBytes) }},
}

func objectDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"kind"}, nil)
}

// Describe implements prometheus.Collector.
func (c *objectCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- availableDesc
	for _, m := range objectMetrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *objectCollector) Collect(ch chan<- prometheus.Metric) {
	now := c.now()
	ch <- prometheus.MustNewConstMetric(availableDesc, prometheus.GaugeValue, oneIf(now.Available))
	for _, k := range now.Kinds {
		for _, m := range objectMetrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(k), k.Kind)
		}
	}
}
