package api

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestSnapshotsTravel(t *testing.T) {
	f := start(t)
	n := decode[bothy.Snapshot](f, f.ok(201, f.do("POST", f.create()+"/snapshots", `{"name":"s"}`)))
	res := f.do("GET", "/v1/snapshots/"+n.ID+"/export", nil, header{"X-Bothy-Passphrase": "hush"})
	if res.body != n.ID+" hush" || !strings.Contains(res.Header.Get("Content-Disposition"), n.ID+".bothy") {
		t.Errorf("exported %q, %v", res.body, res.Header)
	}
	if strings.Contains(f.logged.String(), "hush") {
		t.Error("the passphrase is in the log")
	}
	f.failed(bothy.CodeSnapshotNotFound, f.do("GET", "/v1/snapshots/snp-none/export", nil))
	in := decode[bothy.Snapshot](f, f.ok(201, f.do("POST", "/v1/snapshots/import?name=new-", "archive", header{"Content-Type": "application/octet-stream"})))
	if in.ID != "snp-imported" || in.Name != "new-archive" {
		t.Errorf("imported %+v", in)
	}
	f.failed(bothy.CodeSnapshotDamaged, f.do("POST", "/v1/snapshots/import", "", header{"Content-Type": "application/octet-stream"}))
}

func TestLogsAndLimits(t *testing.T) {
	f := start(t)
	path := f.create()
	logs := decode[bothy.Logs](f, f.ok(200, f.do("GET", path+"/logs?pid=9", nil)))
	if len(logs.Items) != 1 || logs.Items[0].PID != 9 || logs.Items[0].Data != "hello\n" {
		t.Errorf("%+v", logs)
	}
	f.failed(bothy.CodeInvalid, f.do("GET", path+"/logs?pid=x", nil))
	l := decode[bothy.PlanLimits](f, f.ok(200, f.do("GET", "/v1/limits", nil)))
	if l.Plan != "test" || l.Sandboxes.Limit == nil || *l.Sandboxes.Limit != 5 || l.Sandboxes.Used != 1 {
		t.Errorf("%+v", l)
	}
}

// An archive is large, and may be refused at its first byte: the answer must
// arrive although the caller is still sending.
func TestRefusedArchiveLearnsWhy(t *testing.T) {
	f := start(t)
	f.world.RefuseImports = true
	for range 5 {
		f.failed(bothy.CodeInvalid, f.do("POST", "/v1/snapshots/import", strings.Repeat("x", 8<<20), header{"Content-Type": "application/octet-stream"}))
	}
}
