package pretend

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
)

// DialPort connects to the loopback of this host, which is a pretended
// sandbox's as well.
func (w Exec) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	if _, err := w.find(id); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeConflict, "nothing listens on port %d", port).WithHint("Start the server first.")
	}
	return c, nil
}

// MetricsHistory returns two readings of an idle sandbox.
func (w Exec) MetricsHistory(ctx context.Context, id string, from, _ time.Time) ([]*bothy.Metrics, error) {
	list := []*bothy.Metrics{}
	for _, ago := range []time.Duration{time.Hour, time.Minute} {
		m, err := w.Metrics(ctx, id)
		if err != nil {
			return nil, err
		}
		if m.Time = m.Time.Add(-ago); !m.Time.Before(from) {
			list = append(list, m)
		}
	}
	return list, nil
}

// LatestMetrics returns those of all sandboxes.
func (w Exec) LatestMetrics(ctx context.Context) ([]*bothy.SandboxMetrics, error) {
	list := []*bothy.SandboxMetrics{}
	w.mu.Lock()
	ids := slices.Sorted(maps.Keys(w.sandboxes))
	w.mu.Unlock()
	for _, id := range ids {
		m, err := w.Metrics(ctx, id)
		if err != nil {
			return nil, err
		}
		used := 0.25
		list = append(list, &bothy.SandboxMetrics{SandboxID: id, CPUUsed: &used, Metrics: *m})
	}
	return list, nil
}

// Metrics returns those of an idle sandbox.
func (w Exec) Metrics(_ context.Context, id string) (*bothy.Metrics, error) {
	s, err := w.find(id)
	if err != nil {
		return nil, err
	}
	return &bothy.Metrics{
		Time: time.Now().UTC(), CPUCount: s.CPU, CPUSeconds: 0.25, Processes: 1 + len(s.processes),
		MemoryBytes: 9 << 20, MemoryLimitBytes: int64(s.MemoryMB) << 20, DiskBytes: 1 << 20, DiskLimitBytes: int64(s.DiskMB) << 20,
	}, nil
}
