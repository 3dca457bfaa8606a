package ports

import (
	"net/http"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy/api/middleware"
)

// linkCookieName reports whether a cookie, as NAME=VALUE, is a link's or a login's. A cookie
// without a name, as in "=bothy_link=x", is sent by browsers as if it began after the sign.
func linkCookieName(pair string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(pair, "= \t"), "=")
	name = strings.TrimSpace(name)
	return slices.ContainsFunc([]string{LinkCookie, linkHostCookie, middleware.SessionCookie, middleware.SessionHostCookie},
		func(ours string) bool { return strings.EqualFold(name, ours) })
}

// stripLinkCookie hides a link from the server in the sandbox.
func stripLinkCookie(h http.Header) {
	lines := h.Values("Cookie")
	h.Del("Cookie")
	for _, line := range lines {
		var kept []string
		for part := range strings.SplitSeq(line, ";") {
			if !linkCookieName(part) {
				kept = append(kept, strings.TrimSpace(part))
			}
		}
		if len(kept) > 0 {
			h.Add("Cookie", strings.Join(kept, "; "))
		}
	}
}

// confineCookies restricts the cookies that a server in a sandbox sets to its own host, and
// keeps them from replacing a link's.
func confineCookies(h http.Header) {
	lines := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, line := range lines {
		parts := strings.Split(line, ";")
		if linkCookieName(parts[0]) {
			continue
		}
		kept := parts[:1]
		for _, attribute := range parts[1:] {
			name, _, _ := strings.Cut(attribute, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "domain") {
				kept = append(kept, attribute)
			}
		}
		h.Add("Set-Cookie", strings.Join(kept, ";"))
	}
}
