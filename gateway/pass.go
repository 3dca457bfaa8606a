package gateway

import (
	"context"
	"errors"
	"strings"

	"github.com/miekg/dns"
)

// passedOn are the types that a sandbox in mode open may query besides
// addresses, but not HTTPS and SVCB: they carry the keys that hide server
// names.
var passedOn = []uint16{
	dns.TypeTXT, dns.TypeMX, dns.TypeSRV, dns.TypeCNAME, dns.TypeNS, dns.TypeSOA, dns.TypeCAA, dns.TypePTR, dns.TypeNAPTR,
}

// maxPassedOn bounds the records of one answer, because each may name a host
// that has to be looked up.
const maxPassedOn = 32

// An Exchanger is a Resolver that can answer queries for other types than addresses. Sandboxes
// in mode open get them answered by one.
type Exchanger interface {
	Exchange(ctx context.Context, q dns.Question) ([]dns.RR, error)
}

// passOn lets the host's resolver answer a query for another type than addresses, if the name is
// public and not in the operator's network.
func (g *Gateway) passOn(ctx context.Context, q dns.Question, name string, v verdict, m *dns.Msg) int {
	x, ok := g.resolver.(Exchanger)
	if !ok {
		return dns.RcodeNotImplemented
	}
	err := g.public(ctx, x, name, q.Qtype)
	var rrs []dns.RR
	if err == nil {
		rrs, err = x.Exchange(ctx, dns.Question{Name: dns.Fqdn(name), Qtype: q.Qtype, Qclass: dns.ClassINET})
	}
	var bad *forbiddenError
	switch {
	case errors.As(err, &bad):
		g.recordName(name, refuse("%s", bad.reason()))
		return dns.RcodeNameError
	case errors.Is(err, errNotPublic):
		g.recordName(name, refuse("%s", err))
		return dns.RcodeNameError
	case errors.Is(err, errNoName):
		g.recordName(name, v)
		return dns.RcodeNameError
	case err != nil:
		g.recordName(name, v)
		return dns.RcodeServerFailure
	}
	g.recordName(name, v)
	for _, rr := range rrs[:min(len(rrs), maxPassedOn)] {
		if (rr.Header().Rrtype == q.Qtype || rr.Header().Rrtype == dns.TypeCNAME) && !g.mayPointInside(ctx, rr) {
			rr.Header().Ttl = min(rr.Header().Ttl, dnsTTL)
			m.Answer = append(m.Answer, rr)
		}
	}
	return dns.RcodeSuccess
}

// errNotPublic is returned if neither a name nor its domain has an address.
var errNotPublic = errors.New("neither the name nor a domain above it has an address that may be reached")

// public returns nil if name is public. It decides by the name's addresses, or if it has none,
// by those of its name servers and then of the parent domain. The host's resolver may know names
// that the internet does not.
func (g *Gateway) public(ctx context.Context, x Exchanger, name string, kind uint16) error {
	if kind == dns.TypePTR && strings.HasSuffix(name, ".in-addr.arpa") {
		return nil // The address in question has been checked.
	}
	for above := true; above; _, name, above = strings.Cut(name, ".") {
		if _, err := g.reachable(ctx, name); !errors.Is(err, errNoName) {
			return err
		}
		if decided, err := g.served(ctx, x, name); decided {
			return err
		}
	}
	return errNotPublic
}

// served decides by the name servers of a domain, if it has any.
func (g *Gateway) served(ctx context.Context, x Exchanger, domain string) (decided bool, err error) {
	if !strings.Contains(domain, ".") {
		return false, nil // Everything is below a top-level domain.
	}
	rrs, err := x.Exchange(ctx, dns.Question{Name: dns.Fqdn(domain), Qtype: dns.TypeNS, Qclass: dns.ClassINET})
	if err != nil && !errors.Is(err, errNoName) {
		return true, err
	}
	for _, rr := range rrs[:min(len(rrs), maxPassedOn)] {
		ns, ok := rr.(*dns.NS)
		if !ok {
			continue
		}
		server, ok := canonicalName(ns.Ns)
		if !ok {
			continue
		}
		if _, err := g.reachable(ctx, server); err == nil {
			return true, nil
		}
		decided = true
	}
	if decided {
		return true, errNotPublic
	}
	return false, nil
}

// mayPointInside reports whether a record names a host that is not known to be outside.
func (g *Gateway) mayPointInside(ctx context.Context, rr dns.RR) bool {
	var target string
	switch r := rr.(type) {
	case *dns.CNAME:
		target = r.Target
	case *dns.MX:
		target = r.Mx
	case *dns.SRV:
		target = r.Target
	case *dns.NS:
		target = r.Ns
	case *dns.SOA:
		target = r.Ns
	case *dns.PTR:
		target = r.Ptr
	case *dns.NAPTR:
		target = r.Replacement
	}
	name, ok := canonicalName(target)
	if !ok {
		return false
	}
	_, err := g.reachable(ctx, name)
	return err != nil && !errors.Is(err, errNoName)
}
