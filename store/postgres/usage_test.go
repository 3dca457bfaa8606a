package postgres_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy/store"
)

// Usage from before days and months were summed up is in every report, and so is what a host writes
// whose program does not know of them.
func TestEarlierUsageIsSummedUp(t *testing.T) {
	url, ctx := database(t), t.Context()
	s := open(t, url)
	defer s.Close()
	first := time.Date(2025, 12, 30, 5, 0, 0, 0, time.UTC).Unix() / 3600
	n := 0
	write := func() {
		t.Helper()
		n++
		batch := store.UsageBatch{ID: fmt.Sprint(n)}
		for hour := int64(0); hour < 70*24; hour += 5 {
			batch.Rows = append(batch.Rows, store.UsageRow{UsageKey: store.UsageKey{Project: "p", Template: "t", Sandbox: "s"}, Hour: first + hour, Counts: store.Counts{1, hour}})
		}
		must(t, s.WriteUsage(ctx, batch))
	}
	sums := func() (all [][]store.UsageGroup) {
		for _, q := range []store.UsageQuery{{Hour: true}, {Day: true}, {}} { // from hours, days and months
			q.From, q.To = first, first+69*24
			list, err := s.QueryUsage(ctx, q)
			must(t, err)
			var total store.UsageGroup
			for _, g := range list {
				total.Counts.Add(g.Counts)
			}
			all = append(all, []store.UsageGroup{total})
		}
		return all
	}
	text, err := os.ReadFile("migrations/00013_usage_rollups.sql")
	must(t, err)
	up, down, _ := strings.Cut(string(text), "-- +goose Down")
	conn, err := pgx.Connect(ctx, url)
	must(t, err)
	defer conn.Close(ctx)
	migrate := func(text string) {
		t.Helper()
		_, err := conn.PgConn().Exec(ctx, text).ReadAll()
		must(t, err)
	}
	write()
	migrate(down)
	write()
	migrate(up)
	write()
	all := sums()
	if !reflect.DeepEqual(all[0], all[1]) || !reflect.DeepEqual(all[0], all[2]) || all[0][0].Counts[0] != 3*(69*24/5+1) {
		t.Errorf("by hour, day and month: %v", all)
	}
}
