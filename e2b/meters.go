package e2b

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

func (d *Door) meterRoutes() []Route {
	look := bothy.ScopeSandboxesRead
	return []Route{
		route("GET /sandboxes/{sandboxID}/metrics", "sandbox-metrics", look, d.metrics),
		route("GET /sandboxes/metrics", "sandboxes-metrics", look, d.metricsOfMany),
		route("GET /sandboxes/{sandboxID}/logs", "sandbox-logs", look, d.logsV1),
		route("GET /v2/sandboxes/{sandboxID}/logs", "sandbox-logs", look, d.logsV2),
	}
}

type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

// cpuSeen is the CPU time of sandboxes at their last query, so that the next one can compute
// their usage since.
type cpuSeen struct {
	mu sync.Mutex
	by map[string]cpuLook
}

type cpuLook struct {
	at      time.Time
	seconds float64
}

// maxSeen limits how many sandboxes are remembered. Beyond that, the cache is emptied.
const maxSeen = 10000

// percent is how much of one processor a sandbox has used since the last query, or since it was
// started.
func (c *cpuSeen) percent(id string, now cpuLook, started time.Time) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.by[id]
	if !ok || before.seconds > now.seconds {
		before = cpuLook{at: started}
	}
	if c.by == nil || len(c.by) >= maxSeen {
		c.by = map[string]cpuLook{}
	}
	c.by[id] = now
	return now.since(before)
}

// since is how much of one processor was used since an earlier query, in percent.
func (l cpuLook) since(before cpuLook) float64 {
	took := l.at.Sub(before.at).Seconds()
	if took <= 0 {
		return 0
	}
	return math.Round((l.seconds-before.seconds)/took*10000) / 100
}

func (d *Door) metricOf(ctx context.Context, sb *bothy.Sandbox) (metric, error) {
	m, err := d.Metrics.Metrics(ctx, sb.ID)
	if err != nil {
		return metric{}, err
	}
	return pointOf(m, d.used.percent(sb.ID, cpuLook{m.Time, m.CPUSeconds}, begunAt(sb))), nil
}

func begunAt(sb *bothy.Sandbox) time.Time {
	if sb.StartedAt != nil {
		return *sb.StartedAt
	}
	return sb.CreatedAt
}

func pointOf(m *bothy.Metrics, percent float64) metric {
	return metric{
		Timestamp: m.Time, TimestampUnix: m.Time.Unix(), CPUCount: int(math.Ceil(m.CPUCount)), CPUUsedPct: percent,
		MemUsed: m.MemoryBytes, MemTotal: m.MemoryLimitBytes, DiskUsed: m.DiskBytes, DiskTotal: m.DiskLimitBytes,
	}
}

// measured returns the points of an interval, in seconds, that the server has kept. Processor
// usage needs the point before as well, so all points are requested.
func (d *Door) measured(ctx context.Context, sb *bothy.Sandbox, start, end int64) ([]metric, error) {
	all, err := d.Metrics.MetricsHistory(ctx, sb.ID, time.Time{}, time.Time{})
	if err != nil {
		return nil, err
	}
	list := []metric{}
	before := cpuLook{at: begunAt(sb)}
	for _, m := range all {
		now := cpuLook{m.Time, m.CPUSeconds}
		if at := m.Time.Unix(); at >= start && at <= end {
			list = append(list, pointOf(m, now.since(before)))
		}
		before = now
	}
	return list, nil
}

// metrics answers with the measurements taken while a sandbox ran, and with the current
// one if the interval includes now.
func (d *Door) metrics(w http.ResponseWriter, r *http.Request) error {
	end, err := number(r.URL.Query(), "end", math.MaxInt, 0, math.MaxInt)
	if err != nil {
		return err
	}
	start, err := number(r.URL.Query(), "start", 0, 0, math.MaxInt)
	if err != nil {
		return err
	}
	sb, err := d.found(r.Context(), d.id(r))
	if err != nil {
		return err
	}
	list, err := d.measured(r.Context(), sb, int64(start), int64(end))
	if err != nil {
		return err
	}
	if stateOf(sb.State) == "running" && int64(end) >= d.now().Add(-5*time.Second).Unix() {
		m, err := d.metricOf(r.Context(), sb)
		if err != nil {
			return err
		}
		list = append(list, m)
	}
	return reply(w, http.StatusOK, list)
}

func (d *Door) metricsOfMany(w http.ResponseWriter, r *http.Request) error {
	ids := split(r.URL.Query()["sandbox_ids"])
	if len(ids) == 0 || len(ids) > 100 {
		return invalid("sandbox_ids names %d sandboxes; give from 1 to 100", len(ids))
	}
	all := map[string]metric{}
	for _, id := range ids {
		sb, err := d.found(r.Context(), bareID(id))
		if err != nil || stateOf(sb.State) != "running" {
			continue
		}
		if m, err := d.metricOf(r.Context(), sb); err == nil {
			all[id] = m
		}
	}
	return reply(w, http.StatusOK, map[string]any{"sandboxes": all})
}
