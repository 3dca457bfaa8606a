package e2e

import (
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// The usage of a sandbox that keeps running through two crashes of its server, one of them while usage is
// written, matches the time that it has run.
func TestUsageThroughCrashes(t *testing.T) {
	t.Parallel()
	s := stoppedServer(t)
	// The server dies while it writes the first batch with a sandbox in it.
	if err := s.Start("store.usage=kill"); err != nil {
		t.Fatal(err)
	}
	sb, err := s.create(t.Context(), bothy.SandboxCreate{TimeoutSeconds: ptr(0), CPU: 2, Metadata: map[string]string{"team": "red"}})
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t, s, t.Context(), sb.ID}
	// The process measures a second of processor time; on a busy host it may have got less.
	const spun = 0.05
	b.sh("", "python3 -c 'import time\nwhile time.process_time() < 1: pass'")
	if err := s.Dies(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	b.check(2, spun)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	b.check(2, spun)
	if _, err := s.Snapshots.Pause(t.Context(), sb.ID, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	paused := b.usageAfter(time.Now())
	if later := b.usageAfter(paused.AsOf.Add(2 * time.Second)); later.Total.VCPUSeconds != paused.Total.VCPUSeconds {
		t.Errorf("while paused, the usage went from %v to %v vCPU-seconds", paused.Total.VCPUSeconds, later.Total.VCPUSeconds)
	}
}

// usageAfter waits for a report that is complete up to a time.
func (b *box) usageAfter(at time.Time) *bothy.UsageReport {
	b.Helper()
	for deadline := time.Now().Add(hangs); time.Now().Before(deadline); time.Sleep(250 * time.Millisecond) {
		if r := b.usage(); r.AsOf.After(at) {
			return r
		}
	}
	b.Fatal("the usage reports do not advance")
	return nil
}

func (b *box) usage() *bothy.UsageReport {
	b.Helper()
	r, err := b.s.Usage.Usage(b.ctx, bothy.UsageQuery{From: time.Now().Add(-24 * time.Hour), GroupBy: []string{"label:team"}, Sandbox: b.id})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// check compares the usage of a sandbox that was never paused with its age.
func (b *box) check(cpus, atLeastUsed float64) *bothy.UsageReport {
	b.Helper()
	sb := b.get()
	r := b.usage()
	asked := time.Now()
	// It is counted from shortly after its start, which a busy machine may delay.
	const slack = 3 * time.Second
	least, most := cpus*(r.AsOf.Sub(*sb.StartedAt)-slack).Seconds(), cpus*asked.Sub(*sb.StartedAt).Seconds()
	if got := r.Total.VCPUSeconds; got < least || got > most {
		b.Errorf("%v vCPU-seconds of a sandbox that has run for %v to %v", got, least, most)
	}
	if got := r.Total.CPUSeconds; got < atLeastUsed || got > most {
		b.Errorf("it has used %v CPU-seconds, want at least %v", got, atLeastUsed)
	}
	if len(r.Items) != 1 || r.Items[0].Labels["team"] != "red" {
		b.Errorf("it belongs to %+v", r.Items)
	}
	return r
}
