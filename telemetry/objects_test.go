package telemetry_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/bothy-dev/bothy/telemetry"
)

func TestObjectStorage(t *testing.T) {
	m := telemetry.New("v", func(context.Context) (telemetry.Census, error) { return telemetry.Census{}, nil })
	asked := 0
	now := telemetry.ObjectStorage{Available: true, Kinds: []telemetry.ObjectKind{{
		Kind: "snapshots", Pending: 2, Oldest: 1.5, Uploads: 3, UploadFailures: 4, UploadBytes: 5, Fetches: 6, FetchFailures: 7, FetchBytes: 8,
	}}}
	m.ObjectStorage(func() telemetry.ObjectStorage { asked++; return now })
	scrape := func() string {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return "\n" + w.Body.String()
	}
	text := scrape()
	for _, line := range []string{
		"bothy_object_storage_available 1", `bothy_uploads_pending{kind="snapshots"} 2`, `bothy_upload_oldest_seconds{kind="snapshots"} 1.5`,
		`bothy_uploads_total{kind="snapshots"} 3`, `bothy_upload_failures_total{kind="snapshots"} 4`, `bothy_upload_bytes_total{kind="snapshots"} 5`,
		`bothy_fetches_total{kind="snapshots"} 6`, `bothy_fetch_failures_total{kind="snapshots"} 7`, `bothy_fetch_bytes_total{kind="snapshots"} 8`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("there is no line %q", line)
		}
	}
	if asked != 1 {
		t.Errorf("a scrape takes %d readings", asked)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "bothy_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	now.Available = false
	if text = scrape(); !strings.Contains(text, "\nbothy_object_storage_available 0\n") {
		t.Error("a later scrape has old values")
	}
}
