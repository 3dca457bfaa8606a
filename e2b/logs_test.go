package e2b

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

type logSandboxes struct{ bothy.SandboxService }

func (logSandboxes) Get(_ context.Context, id string) (*bothy.Sandbox, error) {
	return &bothy.Sandbox{ID: id, State: bothy.StateRunning}, nil
}

type fixedLogs struct{ logs bothy.Logs }

func (l fixedLogs) Logs(context.Context, string, int) (*bothy.Logs, error) { return &l.logs, nil }

// TestLogsOfManyLines asks for a few lines of an output that has as many as it has bytes.
func TestLogsOfManyLines(t *testing.T) {
	const lines = 1 << 20
	logs := bothy.Logs{Items: []bothy.LogEntry{{PID: 7, Stream: "stdout", Data: strings.Repeat("\n", lines-1) + "last"}}}
	d := New(Services{Sandboxes: logSandboxes{}, Logs: fixedLogs{logs}, Server: edgeServer{}}, Config{Domain: func() string { return "" }})
	var before, after runtime.MemStats
	for query, want := range map[string][]string{
		"limit=3": {"", "", ""}, "limit=2&direction=backward": {"last", ""}, "search=las": {"last"}, "limit=0": {},
		"limit=2&direction=backward&search=x": {},
	} {
		r := httptest.NewRequest("GET", "/v2/sandboxes/sbx1/logs?"+query, nil)
		r.SetPathValue("sandboxID", "sbx1")
		w := httptest.NewRecorder()
		runtime.ReadMemStats(&before)
		err := d.logsV2(w, r)
		runtime.ReadMemStats(&after)
		var got struct {
			Logs []logEntry `json:"logs"`
		}
		if err != nil || json.Unmarshal(w.Body.Bytes(), &got) != nil || got.Logs == nil || len(got.Logs) != len(want) {
			t.Errorf("%s: %d entries, %v", query, len(got.Logs), err)
			continue
		}
		for i, e := range got.Logs {
			if e.Message != want[i] || e.Fields["pid"] != "7" {
				t.Errorf("%s: entry %d is %+v", query, i, e)
			}
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 128*lines {
			t.Errorf("%s allocates %d KB for %d KB of output", query, got>>10, lines>>10)
		}
	}
}
