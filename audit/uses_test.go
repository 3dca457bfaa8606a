package audit_test

import (
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/audit"
)

func (f *fixture) used(link string, changes bool, status int) {
	f.RecordUse(bothy.AuditRecord{
		Time: f.o.Now(), ProjectID: "default", TokenID: "tok_a", LinkID: link, Action: "proxy-port", SandboxID: "sbx1",
		Object: "80 GET /", RequestID: "req_1", Status: status,
	}, changes)
}

// All requests to a port are recorded: those that change something individually, up to a limit, and the
// others in summary.
func TestUsesAreCounted(t *testing.T) {
	f := open(t, audit.Options{})
	for range 200 {
		f.used("lnk_1", false, 200)
	}
	for range 70 {
		f.used("lnk_1", true, 200)
	}
	f.used("lnk_2", false, 200)
	f.used("lnk_1", true, 403)
	f.now.Add(int64(time.Minute))
	f.stop()
	f.start()
	each, counted, second, refused := 0, 0, 0, 0
	for _, r := range f.list(operator, bothy.AuditFilter{Limit: 1000}) {
		switch {
		case r.Status == 403:
			refused++
		case r.LinkID == "lnk_2":
			second++
		case r.Count > 0:
			counted += r.Count
		default:
			each++
		}
	}
	if each != 61 || counted != 209 || second != 1 || refused != 1 {
		t.Errorf("%d by themselves, %d counted, %d of the second link, %d refused; want 61, 209, 1, 1", each, counted, second, refused)
	}
	f.check(true)
}
