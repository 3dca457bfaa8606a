package lifecycle_test

import (
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// The latest measurements of a sandbox are kept while it runs.
func TestHistoryOfMetrics(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	begun := w.clock.Now()
	for range 200 {
		w.MeasureAll(t.Context())
		w.clock.pass(10 * time.Second)
	}
	history := func(from, to time.Time) []*bothy.Metrics {
		t.Helper()
		list, err := w.MetricsHistory(w.me(), sb.ID, from, to)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	all := history(time.Time{}, time.Time{})
	if len(all) != 180 || !all[0].Time.Equal(begun.Add(200*time.Second)) || !all[179].Time.Equal(begun.Add(1990*time.Second)) {
		t.Fatalf("%d measurements are kept, from %v to %v", len(all), all[0].Time, all[len(all)-1].Time)
	}
	for i, m := range all {
		if m.CPUCount == 0 || m.DiskLimitBytes == 0 || i > 0 && m.Time.Sub(all[i-1].Time) != 10*time.Second {
			t.Fatalf("measurement %d: %+v", i, m)
		}
	}
	from := all[10].Time
	if some := history(from, from.Add(20*time.Second)); len(some) != 3 || !some[0].Time.Equal(from) {
		t.Errorf("the last twenty seconds: %+v", some)
	}
	if none := history(begun, begun.Add(time.Second)); len(none) != 0 {
		t.Errorf("a time that is no longer kept: %+v", none)
	}
	_, err := w.MetricsHistory(as(t, "theirs"), sb.ID, time.Time{}, time.Time{})
	wantCode(t, err, bothy.CodeSandboxNotFound)
	w.pause(sb.ID)
	if slept := history(time.Time{}, time.Time{}); len(slept) != 0 {
		t.Errorf("while it is paused: %+v", slept)
	}
	w.MeasureAll(t.Context()) // must not resume anything
	if got := w.get(sb.ID); got.State != bothy.StatePaused {
		t.Errorf("it is %s", got.State)
	}
}

// The latest metrics list the caller's own sandboxes, with the processors used since the previous
// measurement.
func TestLatestMetrics(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	latest := func() []*bothy.SandboxMetrics {
		t.Helper()
		list, err := w.LatestMetrics(w.me())
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if list := latest(); len(list) != 0 {
		t.Errorf("before the first measurement: %+v", list)
	}
	w.MeasureAll(t.Context())
	if list := latest(); len(list) != 1 || list[0].SandboxID != sb.ID || list[0].CPUUsed != nil || list[0].CPUCount == 0 {
		t.Errorf("after the first: %+v", list)
	}
	w.clock.pass(10 * time.Second)
	w.MeasureAll(t.Context())
	if list := latest(); len(list) != 1 || list[0].CPUUsed == nil || !list[0].Time.Equal(w.clock.Now()) {
		t.Errorf("after the second: %+v", list)
	}
	if list, err := w.LatestMetrics(as(t, "theirs")); err != nil || len(list) != 0 {
		t.Errorf("for another project: %+v, %v", list, err)
	}
	w.pause(sb.ID)
	if list := latest(); len(list) != 0 {
		t.Errorf("while it is paused: %+v", list)
	}
}
