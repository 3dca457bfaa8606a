package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
)

// recorded waits for the next record, which is written after the answer was sent.
func (f *fixture) recorded(known int) bothy.AuditRecord {
	f.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if all := f.audits.Records(); len(all) > known {
			return all[known]
		} else if time.Now().After(deadline) {
			f.Fatalf("there is no record %d", known+1)
		}
	}
}

func TestWhatIsRecorded(t *testing.T) {
	f := start(t)
	b := f.create()
	id := strings.TrimPrefix(b, "/v1/sandboxes/")
	made := f.recorded(0)
	if made.Action != "create-sandbox" || made.SandboxID != id || made.ProjectID != "default" || made.TokenID != "tok_writer" ||
		made.Remote != "127.0.0.1" || made.Status != 201 || made.Code != "" || made.RequestID == "" || made.Time.IsZero() {
		t.Errorf("a create is recorded as %+v", made)
	}
	n := 1
	for _, c := range []struct {
		key, method, path, body string
		want                    bothy.AuditRecord
	}{
		{apitest.Writer, "POST", b + "/exec", `{"command":"echo hi","env":{"KEY":"s3cret-value"},"stdin":"s3cret-value"}`,
			bothy.AuditRecord{Action: "exec", SandboxID: id, Command: "echo hi", Status: 200}},
		{apitest.Writer, "POST", b + "/exec", `{"command":["echo","a b"]}`,
			bothy.AuditRecord{Action: "exec", SandboxID: id, Command: `["echo","a b"]`, Status: 200}},
		{apitest.Writer, "POST", b + "/code", `{"code":"1+1"}`,
			bothy.AuditRecord{Action: "run-code", SandboxID: id, Command: "1+1", Status: 200}},
		{apitest.Writer, "POST", b + "/files", `{"path":"/workspace/a","content":"s3cret-value"}`,
			bothy.AuditRecord{Action: "write-file", SandboxID: id, Object: "/workspace/a", Status: 200}},
		{apitest.Writer, "PUT", b + "/files?path=/workspace/b", `s3cret-value`,
			bothy.AuditRecord{Action: "put-file", SandboxID: id, Object: "/workspace/b", Status: 200}},
		{apitest.Reader, "GET", b + "/files?path=/workspace/a", ``,
			bothy.AuditRecord{Action: "read-file", SandboxID: id, Object: "/workspace/a", Status: 200}},
		{apitest.Reader, "POST", b + "/exec", `{"command":"echo hi"}`,
			bothy.AuditRecord{Action: "exec", SandboxID: id, Status: 403, Code: bothy.CodeForbidden}},
		{apitest.Stranger, "GET", b, ``,
			bothy.AuditRecord{Action: "get-sandbox", SandboxID: id, Status: 404, Code: bothy.CodeSandboxNotFound}},
		{"bothy_wrong-s3cret-value", "DELETE", b, ``,
			bothy.AuditRecord{Action: "terminate-sandbox", SandboxID: id, Status: 401, Code: bothy.CodeUnauthenticated}},
		{apitest.Expired, "POST", "/v1/sandboxes", `{}`,
			bothy.AuditRecord{Action: "create-sandbox", Status: 401, Code: bothy.CodeTokenExpired}},
		{apitest.Writer, "GET", "/v1/nothing/../there?key=s3cret-value", ``,
			bothy.AuditRecord{Action: "request", Object: "GET /v1/there", Status: 404, Code: bothy.CodeNotFound}},
		{apitest.Admin, "POST", "/v1/tokens", `{"name":"ci"}`,
			bothy.AuditRecord{Action: "create-token", Object: "tok_1", Status: 201}},
		{apitest.Admin, "DELETE", "/v1/tokens/tok_1", ``,
			bothy.AuditRecord{Action: "delete-token", Object: "tok_1", Status: 204}},
		{apitest.Admin, "PATCH", "/v1/hosts/two", `{"state":"draining"}`,
			bothy.AuditRecord{Action: "update-host", Object: "two draining", Status: 200}},
		{apitest.Admin, "POST", b + "/move", `{}`,
			bothy.AuditRecord{Action: "move-sandbox", SandboxID: id, Object: "two one", Status: 200}},
		{apitest.Admin, "POST", b + "/move", `{"host":"ten"}`,
			bothy.AuditRecord{Action: "move-sandbox", SandboxID: id, Object: "ten", Status: 404, Code: bothy.CodeNotFound}},
		{apitest.Admin, "DELETE", "/v1/hosts/two", ``,
			bothy.AuditRecord{Action: "remove-host", Object: "two", Status: 204}},
		{apitest.Admin, "GET", "/v1/audit", ``,
			bothy.AuditRecord{Action: "list-audit", Status: 200}},
	} {
		var body any
		if c.body != "" {
			body = c.body
		}
		f.as(c.key).do(c.method, c.path, body)
		got := f.recorded(n)
		n++
		got = bothy.AuditRecord{Action: got.Action, SandboxID: got.SandboxID, Object: got.Object, Command: got.Command, Status: got.Status, Code: got.Code}
		if got != c.want {
			t.Errorf("%s %s as %s is recorded as\n%+v, want\n%+v", c.method, c.path, c.key, got, c.want)
		}
	}
	// Reads are not recorded.
	f.ok(http.StatusOK, f.do("GET", b, nil))
	f.ok(http.StatusOK, f.do("GET", "/v1/sandboxes", nil))
	f.ok(http.StatusOK, f.do("POST", b+"/exec", `{"command":"echo last"}`))
	if got := f.recorded(n); got.Command != "echo last" {
		t.Errorf("recorded %+v", got)
	}
	for _, r := range f.audits.Records() {
		for _, text := range []string{r.Command, r.Object, r.TokenName, r.Action, r.SandboxID, r.RequestID} {
			if strings.Contains(text, "s3cret") {
				t.Errorf("a secret is recorded: %+v", r)
			}
		}
	}
}

func TestReadsAreRecordedIfConfigured(t *testing.T) {
	f := start(t, func(s *setup) { s.config.AuditReads = true })
	f.ok(http.StatusOK, f.do("GET", "/v1/sandboxes", nil))
	if r := f.recorded(0); r.Action != "list-sandboxes" {
		t.Errorf("recorded %+v", r)
	}
}

// A request that cannot be recorded is refused.
func TestNothingIsDoneUnrecorded(t *testing.T) {
	f := start(t)
	f.audits.SetFull(bothy.Errorf(bothy.CodeCapacity, "the disk is full").WithHint("Make room."))
	f.failed(bothy.CodeCapacity, f.do("POST", "/v1/sandboxes", nil))
	f.ok(http.StatusOK, f.do("GET", "/v1/sandboxes", nil))
	f.audits.SetFull(nil)
	f.create()
	if n := strings.Count(f.do("GET", "/v1/sandboxes", nil).body, `"id":`); n != 1 {
		t.Errorf("there are %d sandboxes, want 1", n)
	}
}

// A key can be revoked although that cannot be recorded now.
func TestRevokingNeedsNoRoomInTheAudit(t *testing.T) {
	f := start(t)
	admin := f.as(apitest.Admin)
	token := decode[bothy.Token](admin, admin.ok(201, admin.do("POST", "/v1/tokens", `{"name":"ci"}`)))
	f.audits.SetFull(bothy.Errorf(bothy.CodeCapacity, "the disk is full").WithHint("Make room."))
	admin.failed(bothy.CodeCapacity, admin.do("POST", "/v1/tokens", `{"name":"another"}`))
	admin.ok(204, admin.do("DELETE", "/v1/tokens/"+token.ID, nil))
	f.failed(bothy.CodeUnauthenticated, f.as(token.Key).do("GET", "/v1/sandboxes", nil))
}

func TestAskingForRecords(t *testing.T) {
	f := start(t)
	f.create()
	f.recorded(0)
	f.failed(bothy.CodeForbidden, f.do("GET", "/v1/audit", nil))
	f.key = apitest.Admin
	p := decode[bothy.Page[bothy.AuditRecord]](f, f.ok(http.StatusOK, f.do("GET",
		"/v1/audit?since=2026-01-02T03:04:05Z&action=exec&token=t&sandbox=s&project=p&refused=true&order=oldest&limit=7&cursor=9", nil)))
	if len(p.Items) != 2 {
		t.Errorf("got %+v", p)
	}
	want := bothy.AuditFilter{
		Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Action: "exec", TokenID: "t", SandboxID: "s", ProjectID: "p",
		Refused: true, Oldest: true, Limit: 7, Cursor: 9,
	}
	if f.audits.Asked != want {
		t.Errorf("asked for %+v, want %+v", f.audits.Asked, want)
	}
	f.failed(bothy.CodeInvalid, f.do("GET", "/v1/audit?order=random", nil))
	f.failed(bothy.CodeInvalid, f.do("GET", "/v1/audit/verify?at=1&head=x", nil))
	head := strings.Repeat("0a", 32)
	if c := decode[bothy.AuditCheck](f, f.ok(http.StatusOK, f.do("GET", "/v1/audit/verify?at=4&head="+head, nil))); c.Last != 4 || c.Head != head {
		t.Errorf("got %+v", c)
	}
	f.failed(bothy.CodeForbidden, f.as(apitest.Stranger).do("GET", "/v1/audit/verify", nil))
}
