package api

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// The audit, the log and servers in sandboxes get the client's address from a trusted proxy, and never
// one that an untrusted client claims.
func TestForwardedAddressIsRecorded(t *testing.T) {
	for _, trusted := range []bool{true, false} {
		f := start(t, func(s *setup) {
			if trusted {
				s.config.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			}
		})
		want := "127.0.0.1"
		if trusted {
			want = "192.0.2.7"
		}
		f.world.Server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(r.Header.Get("X-Forwarded-For") + " " + r.Header.Get("X-Forwarded-Proto") + " " + r.Header.Get("X-Real-Ip")))
		})
		forwarded := header{"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https", "X-Real-Ip": "192.0.2.9"}
		path := f.create()
		res := f.ok(200, f.do("GET", path+"/ports/8080/", nil, forwarded))
		if proto := map[bool]string{true: "https", false: "http"}[trusted]; res.body != want+" "+proto+" " {
			t.Errorf("trusted %v: the sandbox is told %q", trusted, res.body)
		}
		f.failed(bothy.CodeUnauthenticated, f.do("GET", "/v1/sandboxes", nil, forwarded, header{"Authorization": ""}))
		records := f.audits.Records()
		if got := records[len(records)-1].Remote; got != want {
			t.Errorf("trusted %v: the audit says %s", trusted, got)
		}
		if strings.Contains(f.logged.String(), `"remote":"192.0.2.7"`) != trusted {
			t.Errorf("trusted %v: %s", trusted, f.logged)
		}
	}
}
