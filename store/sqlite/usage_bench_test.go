package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy/store"
)

// BenchmarkWriteUsage writes what 64 running sandboxes have used in ten seconds.
func BenchmarkWriteUsage(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "b.db"))
	defer s.Close()
	for n := 0; b.Loop(); n++ {
		batch := store.UsageBatch{ID: fmt.Sprint(n)}
		for i := range 64 {
			id := fmt.Sprint("sbx", i)
			batch.Rows = append(batch.Rows, store.UsageRow{
				UsageKey: store.UsageKey{Project: "p", Template: "t", Sandbox: id, Labels: `{"team":"red"}`}, Hour: 500000,
				Counts: store.Counts{1, 2, 3, 4, 5, 6, 7},
			})
			batch.Marks = append(batch.Marks, store.UsageMark{Sandbox: id})
		}
		if err := s.WriteUsage(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}
