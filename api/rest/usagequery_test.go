package rest

import (
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

func TestUsageQuery(t *testing.T) {
	in := usageInput{From: "2026-01-31", To: "2026-02-01T12:00:00+02:00", GroupBy: " day, label:a b ,,sandbox", Project: "p"}
	q, err := in.query()
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2026, 2, 1, 10, 0, 0, 0, time.UTC); !q.To.Equal(want) || q.From.Day() != 31 {
		t.Errorf("from %v to %v", q.From, q.To)
	}
	if got := strings.Join(q.GroupBy, "|"); got != "day|label:a b|sandbox" {
		t.Errorf("grouped by %s", got)
	}
	for _, bad := range []string{"yesterday", "2026-13-01", "2026-01-01 10:00", "0001-01-01", "99999-01-01"} {
		if _, err := parseDate("from", bad); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
