package e2b

import (
	"crypto/hmac"
	"net/http"
	"strings"

	"github.com/bothy-dev/bothy"
)

// MayReach reports whether a request shows what opens a port of a sandbox, or whether anyone may
// use its ports. It is asked before a host does something for the sandbox; ServePort decides.
func (d *Door) MayReach(r *http.Request, sb *bothy.Sandbox) bool {
	for name, what := range map[string]string{headerTraffic: tokenForTraffic, headerAgent: tokenForAgent} {
		token := r.Header.Get(name)
		key, _, _ := strings.Cut(token, ".")
		if token == "" || !hmac.Equal([]byte(token), []byte(d.token(what, key, sb.ID))) {
			continue
		}
		if _, release, err := d.Keys.HoldID(r.Context(), sb.ProjectID, key, func(error) {}); err == nil {
			release()
			return true
		}
	}
	if r.URL.Query().Has("signature") {
		_, err := d.signed(r, sb)
		return err == nil
	}
	return d.config.PublicPorts && sb.Metadata[markName] != "" && sb.Metadata[markPrivate] == ""
}
