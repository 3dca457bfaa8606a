package telemetry

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLosses(t *testing.T) {
	m := New("v", func(context.Context) (Census, error) { return Census{}, nil })
	m.Losses(func() Losses {
		return Losses{Resumed: 1, Failures: 2, LeftPaused: 3, CheckpointsTaken: 4, CheckpointsSkipped: 5, CheckpointsFailed: 6, OldestSeconds: 7.5}
	})
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{"bothy_lost_sandboxes_resumed_total 1", "bothy_lost_sandboxes_resume_failures_total 2", "bothy_lost_sandboxes_left_paused_total 3",
		"bothy_checkpoints_total 4", "bothy_checkpoints_skipped_total 5", "bothy_checkpoints_failed_total 6", "bothy_checkpoint_oldest_seconds 7.5"} {
		if !strings.Contains("\n"+w.Body.String(), "\n"+line+"\n") {
			t.Errorf("there is no line %q", line)
		}
	}
}
