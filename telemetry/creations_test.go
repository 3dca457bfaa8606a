package telemetry

import (
	"context"
	"testing"
	"time"
)

func TestCreations(t *testing.T) {
	m := New("test", func(context.Context) (Census, error) { return Census{}, nil })
	if got := m.Creations(); got == nil || len(got) != 0 {
		t.Errorf("before the first: %+v", got)
	}
	m.Request("GET", "GET /v1/sandboxes", 200, time.Millisecond)
	for _, took := range []time.Duration{3 * time.Millisecond, 4 * time.Millisecond, 70 * time.Millisecond, time.Hour} {
		m.Request("POST", creationRoute, 201, took)
	}
	got, all := m.Creations(), int64(0)
	for _, c := range got {
		all += c.Count
		if c.UpToSeconds != nil && *c.UpToSeconds == .005 && c.Count != 2 {
			t.Errorf("up to 5 ms: %d, want 2", c.Count)
		}
	}
	if last := got[len(got)-1]; last.UpToSeconds != nil || last.Count != 1 || all != 4 {
		t.Errorf("last %+v, in all %d", last, all)
	}
}
