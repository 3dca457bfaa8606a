package api

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
)

func TestUsage(t *testing.T) {
	f := start(t)
	const path = "/v1/usage?group_by=day,sandbox,label:team&from=1970-01-01&to=1970-01-02&limit=1"
	r := decode[bothy.UsageReport](f, f.ok(200, f.do("GET", path, nil)))
	if len(r.Items) != 1 || r.Items[0].VCPUSeconds != 1.5 || r.Items[0].Labels["team"] != "=1+1" || r.NextCursor != "1" || r.Total.Cost != 0.25 {
		t.Errorf("got %+v", r)
	}
	q := f.services.Usage.(*apitest.Usage).Last()
	if q.From.Unix() != 0 || q.To.Unix() != 86400 || q.Limit != 1 || len(q.GroupBy) != 3 {
		t.Errorf("the service was asked for %+v", q)
	}
	table := f.ok(200, f.do("GET", path, nil, header{"Accept": "text/csv"}))
	const want = "day,sandbox,label:team,vcpu_seconds,cpu_seconds,memory_mb_seconds,egress_bytes,ingress_bytes,snapshot_mb_seconds,template_mb_seconds,cost,currency\n" +
		"1970-01-01,sbx-1,'=1+1,1.5,0,0,7,0,0,0,0.25,EUR\n"
	if table.body != want || table.Header.Get("Content-Type") != "text/csv; charset=utf-8" || table.Header.Get("X-Next-Cursor") != "1" {
		t.Errorf("the table is\n%s, with %v", table.body, table.Header)
	}
	for _, bad := range []string{"from=yesterday", "to=2026-02-30", "limit=0", "limit=10001", "limit=x", "unknown=1"} {
		f.failed(bothy.CodeInvalid, f.do("GET", "/v1/usage?"+bad, nil))
	}
	f.failed(bothy.CodeUnauthenticated, f.as("").do("GET", "/v1/usage", nil))
}

func TestHealthNamesProblems(t *testing.T) {
	f := start(t, func(s *setup) { s.config.Problems = func() []string { return []string{"the disk is full"} } })
	got := f.ok(200, f.as("").do("GET", "/healthz", nil))
	if !strings.Contains(got.body, `"degraded"`) || !strings.Contains(got.body, "the disk is full") {
		t.Errorf("got %s", got.body)
	}
}
