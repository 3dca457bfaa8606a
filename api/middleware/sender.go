package middleware

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
)

// sender returns the client's address and scheme of a request. A trusted proxy's headers are
// used; anyone else's are ignored.
func (s *Chain) sender(r *http.Request) (remote, scheme string) {
	if p := PeerFrom(r.Context()); p != nil {
		return p.Remote, p.Scheme
	}
	scheme = "http"
	if r.TLS != nil {
		scheme = "https"
	}
	if len(s.TrustedProxies) == 0 {
		return r.RemoteAddr, scheme
	}
	from, err := netip.ParseAddr(RemoteOf(r))
	if err != nil || !s.trusts(from) {
		return r.RemoteAddr, scheme
	}
	// Only the last proxy's value counts: those before it may be the client's own.
	if protos := splitList(r.Header.Values("X-Forwarded-Proto")); len(protos) > 0 {
		if last := protos[len(protos)-1]; last == "http" || last == "https" {
			scheme = last
		}
	}
	return s.client(from, splitList(r.Header.Values("X-Forwarded-For"))).String(), scheme
}

func (s *Chain) trusts(a netip.Addr) bool {
	a = a.Unmap()
	return slices.ContainsFunc(s.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// client walks back along the proxies to the first address that is not a trusted proxy. Anything
// before that is the client's own claim.
func (s *Chain) client(from netip.Addr, forwarded []string) netip.Addr {
	for i := len(forwarded) - 1; i >= 0 && s.trusts(from); i-- {
		text := forwarded[i]
		if ap, err := netip.ParseAddrPort(text); err == nil {
			text = ap.Addr().String()
		}
		a, err := netip.ParseAddr(strings.Trim(text, "[]"))
		if err != nil {
			break
		}
		from = a.WithZone("")
	}
	return from.Unmap()
}

// splitList splits a header's values at their commas.
func splitList(values []string) []string {
	var out []string
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

// SchemeOf is the scheme that the client used: https also if a trusted proxy
// terminated TLS.
func SchemeOf(r *http.Request) string {
	if scheme := bothy.OriginFrom(r.Context()).Scheme; scheme != "" {
		return scheme
	}
	return "http"
}
