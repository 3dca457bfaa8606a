package telemetry

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCluster(t *testing.T) {
	m := New("v", func(context.Context) (Census, error) { return Census{}, nil })
	now := ClusterHost{LeaseAge: 1.5, FreezeAge: 9, Live: true, Freezes: 2, GivenUp: 3, Forwarded: 4, Elsewhere: 5, Unanswered: 6, Placed: 7, Refused: 8, Thaws: 9, LostPaused: 10, LostEnded: 11}
	m.Cluster(func() ClusterHost { return now })
	scrape := func() string {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return "\n" + w.Body.String()
	}
	text := scrape()
	for _, line := range []string{
		"bothy_host_lease_age_seconds 1.5", "bothy_host_lease_freeze_seconds 9", "bothy_host_live 1", "bothy_host_duty 0",
		"bothy_host_freezes_total 2", "bothy_hosts_given_up_total 3", "bothy_forwarded_requests_total 4",
		"bothy_forwarded_requests_elsewhere_total 5", "bothy_forwarded_requests_unanswered_total 6", "bothy_placements_total 7", "bothy_placement_refusals_total 8",
		"bothy_host_thaws_total 9",
		"bothy_lost_sandboxes_paused_total 10", "bothy_lost_sandboxes_ended_total 11",
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("there is no line %q", line)
		}
	}
	now.Live, now.Duty = false, true
	if text = scrape(); !strings.Contains(text, "\nbothy_host_live 0\n") || !strings.Contains(text, "\nbothy_host_duty 1\n") {
		t.Error("a later scrape has old values")
	}
}
