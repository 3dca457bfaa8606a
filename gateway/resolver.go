package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/miekg/dns"
)

// resolvConf names the host's own resolvers.
const resolvConf = "/etc/resolv.conf"

// hostResolver looks names up the way the host does.
type hostResolver struct{}

func (hostResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, network, host)
}

// Exchange asks the host's resolvers in turn, over UDP and then, if the answer did not fit, over
// TCP.
func (hostResolver) Exchange(ctx context.Context, q dns.Question) ([]dns.RR, error) {
	conf, err := dns.ClientConfigFromFile(resolvConf)
	if err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	m.Id = dns.Id()
	m.RecursionDesired = true
	m.Question = []dns.Question{q}
	m.SetEdns0(maxQuery, false)
	err = errors.New("the host has no resolver")
	for _, server := range conf.Servers {
		var rrs []dns.RR
		if rrs, err = exchange(ctx, m, net.JoinHostPort(server, conf.Port)); err == nil || errors.Is(err, errNoName) {
			return rrs, err
		}
	}
	return nil, err
}

func exchange(ctx context.Context, m *dns.Msg, server string) ([]dns.RR, error) {
	r, _, err := (&dns.Client{Net: "udp"}).ExchangeContext(ctx, m, server)
	if err == nil && r.Truncated {
		r, _, err = (&dns.Client{Net: "tcp"}).ExchangeContext(ctx, m, server)
	}
	if err != nil {
		return nil, err
	}
	switch r.Rcode {
	case dns.RcodeSuccess:
		return r.Answer, nil
	case dns.RcodeNameError:
		return nil, errNoName
	}
	return nil, errors.New("the resolver answered " + dns.RcodeToString[r.Rcode])
}
