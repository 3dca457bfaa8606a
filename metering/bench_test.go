package metering_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/metering"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
)

// BenchmarkStartStop measures what metering adds to the life of a sandbox, except for reading its
// counters.
func BenchmarkStartStop(b *testing.B) {
	db, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "b.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	m, err := metering.New(b.Context(), metering.Options{
		Store: db, Rates: bothy.Rates{Currency: "EUR", VCPUHour: 1},
		Sandbox:   db.Sandbox,
		Snapshots: db.AllSnapshots,
		Templates: func(context.Context) ([]*store.Template, error) { return nil, nil },
		Project:   func(context.Context, string) error { return nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := m.SetProjectBudget(b.Context(), "p", 1e6); err != nil {
		b.Fatal(err)
	}
	read := func(context.Context) (bothy.MeterReading, error) { return bothy.MeterReading{}, nil }
	now := time.Now()
	for b.Loop() {
		sb := &store.Sandbox{Sandbox: bothy.Sandbox{ID: "s", ProjectID: "p", Template: "t", CPU: 1, MemoryMB: 512, StartedAt: &now, Metadata: map[string]string{"team": "red"}}}
		if err := m.Allow(sb); err != nil {
			b.Fatal(err)
		}
		sb.MeterState = m.Starting(b.Context(), sb, read)
		m.Started(b.Context(), sb, read, false)
		m.Stopped(b.Context(), sb.ID)
	}
}
