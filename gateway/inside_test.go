package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/miekg/dns"
)

// zones is a host's resolver with a split view: it knows the internet and the operator's internal
// network.
type zones struct {
	*internet
	records map[string][]dns.RR
}

func newZones(t testing.TB, lines ...string) zones {
	z := zones{newInternet(t), map[string][]dns.RR{}}
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		name := rr.Header().Name
		z.records[name] = append(z.records[name], rr)
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A.To4())
			z.names[strings.TrimSuffix(name, ".")] = append(z.names[strings.TrimSuffix(name, ".")], addr)
		}
	}
	return z
}

func (z zones) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	for range 8 {
		i := slices.IndexFunc(z.records[host], func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeCNAME })
		if i < 0 {
			break
		}
		host = z.records[host][i].(*dns.CNAME).Target
	}
	return z.internet.LookupNetIP(ctx, network, host)
}

func (z zones) Exchange(_ context.Context, q dns.Question) (rrs []dns.RR, err error) {
	all, ok := z.records[q.Name]
	if !ok {
		return nil, errNoName
	}
	for _, rr := range all {
		if rr.Header().Rrtype == q.Qtype {
			rrs = append(rrs, dns.Copy(rr))
		}
	}
	return rrs, nil
}

var splitView = []string{
	`example.com. IN A 5.6.7.8`,
	`example.com. IN TXT "v=spf1"`,
	`example.com. IN MX 10 mail.example.com.`,
	`example.com. IN MX 20 relay.corp.internal.`,
	`example.com. IN NS ns.example.com.`,
	`mail.example.com. IN A 5.6.7.9`,
	`ns.example.com. IN A 5.6.7.10`,
	`_dmarc.example.com. IN TXT "v=DMARC1"`,
	`_sip._tcp.example.com. IN SRV 1 1 5060 mail.example.com.`,
	`_sip._tcp.example.com. IN SRV 1 1 5060 pbx.corp.internal.`,
	`alias.example.com. IN CNAME db.corp.internal.`,
	`mixed.example.com. IN A 10.0.5.5`,
	`mixed.example.com. IN A 5.6.7.11`,
	`mixed.example.com. IN TXT "both"`,
	`mailonly.example. IN NS ns.example.com.`,
	`mailonly.example. IN MX 10 mail.example.com.`,
	`corp.internal. IN NS dc.corp.internal.`,
	`corp.internal. IN TXT "the apex"`,
	`corp.internal. IN SOA dc.corp.internal. root.corp.internal. 1 1 1 1 1`,
	`dc.corp.internal. IN A 10.20.30.40`,
	`db.corp.internal. IN A 10.20.30.41`,
	`db.corp.internal. IN TXT "password=hunter2"`,
	`pbx.corp.internal. IN A 192.168.3.3`,
	`relay.corp.internal. IN A 192.168.3.4`,
	`_kerberos._tcp.corp.internal. IN SRV 0 0 88 dc.corp.internal.`,
	`notes.corp.internal. IN TXT "no address"`,
	`intranet. IN TXT "one label"`,
}

func TestOtherTypesOfInternalNamesAreNotAnswered(t *testing.T) {
	z := newZones(t, splitView...)
	l := newLab(t, func(o *Options) { o.Resolver = z })
	l.policy(open)
	for _, c := range []struct {
		name string
		kind uint16
		want []string
	}{
		{"example.com", dns.TypeTXT, []string{"v=spf1"}},
		{"example.com", dns.TypeMX, []string{"mail.example.com"}},
		{"example.com", dns.TypeNS, []string{"ns.example.com"}},
		{"_dmarc.example.com", dns.TypeTXT, []string{"v=DMARC1"}},
		{"_sip._tcp.example.com", dns.TypeSRV, []string{"mail.example.com"}},
		{"mixed.example.com", dns.TypeTXT, []string{"both"}},
		{"mailonly.example", dns.TypeMX, []string{"mail.example.com"}},
		{"alias.example.com", dns.TypeCNAME, nil},
		{"alias.example.com", dns.TypeTXT, nil},
		{"corp.internal", dns.TypeTXT, nil},
		{"corp.internal", dns.TypeNS, nil},
		{"corp.internal", dns.TypeSOA, nil},
		{"db.corp.internal", dns.TypeTXT, nil},
		{"_kerberos._tcp.corp.internal", dns.TypeSRV, nil},
		{"notes.corp.internal", dns.TypeTXT, nil},
		{"intranet", dns.TypeTXT, nil},
	} {
		m := l.query("udp", c.name, c.kind)
		var got strings.Builder
		for _, rr := range m.Answer {
			fmt.Fprintln(&got, strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
		if len(m.Answer) != len(c.want) {
			t.Errorf("%s %s: %v", c.name, dns.TypeToString[c.kind], m.Answer)
		}
		for _, w := range c.want {
			if !strings.Contains(got.String(), w) {
				t.Errorf("%s %s: %q, want %q in it", c.name, dns.TypeToString[c.kind], got.String(), w)
			}
		}
		if c.want == nil && m.Rcode != dns.RcodeNameError {
			t.Errorf("%s %s: %s, want NXDOMAIN as for a name that does not exist", c.name, dns.TypeToString[c.kind], dns.RcodeToString[m.Rcode])
		}
	}
}

// innerAddresses are internal addresses that a sandbox must not learn.
var innerAddresses = []string{"10.20.30.41", "192.168.7.7", "169.254.169.254", "10.99.99.99"}

// failingResolver fails as Go's resolver does when the host's name server is down.
type failingResolver struct{ *internet }

func (f failingResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if strings.HasPrefix(host, "broken.") {
		return nil, &net.DNSError{Err: "server misbehaving", Name: host, Server: "10.99.99.99:53"}
	}
	return f.internet.LookupNetIP(ctx, network, host)
}

// A refusal names the rule but not the internal address that a name has, neither in the answer nor
// in the sandbox's log. The operator's log has it.
func TestRefusalsHideInternalAddresses(t *testing.T) {
	said := &safeBuffer{}
	outside := newInternet(t)
	l := newLab(t, func(o *Options) {
		o.Resolver = failingResolver{outside}
		o.Log = slog.New(slog.NewTextHandler(said, nil))
	})
	for i, name := range []string{"db.inner.example", "host.inner.example", "meta.inner.example"} {
		outside.name(name, innerAddresses[i])
	}
	for _, n := range []bothy.Network{open, only("*.example")} {
		l.policy(n)
		for i, name := range []string{"db.inner.example", "host.inner.example", "meta.inner.example", "broken.inner.example"} {
			for _, network := range []string{"udp", "tcp"} {
				for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS} {
					m := l.query(network, name, kind)
					if strings.Contains(m.String(), innerAddresses[i]) || len(m.Answer) > 0 {
						t.Errorf("%s: the resolver said %v", name, m)
					}
					if i < 3 && m.Rcode != dns.RcodeNameError {
						t.Errorf("%s: %s reveals that the name exists", name, dns.RcodeToString[m.Rcode])
					}
				}
			}
			// A resumed sandbox has stand-ins that this gateway did not give out.
			for _, send := range []string{get(name, "/"), string(clientHello(t, name))} {
				c, err := l.dial(fmt.Sprintf("198.18.77.%d:%d", i+1, map[bool]int{true: 80, false: 443}[strings.HasPrefix(send, "GET")]))
				if err != nil {
					continue
				}
				got := answer(c, send)
				for _, inner := range innerAddresses {
					if strings.Contains(got, inner) {
						t.Errorf("%s: the page says %q", name, got)
					}
				}
				if n.Mode == bothy.NetworkRestricted && strings.HasPrefix(send, "GET") && !strings.HasPrefix(got, "HTTP/1.1 403") {
					t.Errorf("%s: got %q", name, got)
				}
			}
		}
	}
	told := false
	for _, d := range l.gateway.Log(time.Time{}) {
		for _, inner := range innerAddresses {
			if strings.Contains(d.Address+d.Reason+d.Name, inner) {
				t.Errorf("the log says %+v", d)
			}
		}
		told = told || d.Name == "db.inner.example" && strings.Contains(d.Reason, "private")
	}
	if !told {
		t.Error("the log does not say why the name was refused")
	}
	if !strings.Contains(said.String(), innerAddresses[0]) {
		t.Error("the address is not in the operator's log")
	}
}

// answer sends bytes and returns all that comes back.
func answer(c net.Conn, send string) string {
	_ = c.SetDeadline(time.Now().Add(hangs))
	_, _ = c.Write([]byte(send))
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return b.String()
		}
	}
}

// The error page of a failed request shows these errors.
func TestErrorsForTheSandboxHaveNoAddresses(t *testing.T) {
	to := &net.TCPAddr{IP: net.ParseIP(innerAddresses[0]), Port: 443}
	for _, err := range []error{
		&net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: errors.New("connect: connection refused")},
		fmt.Errorf("http2: %w", &net.OpError{Op: "read", Net: "tcp", Source: to, Addr: to, Err: errors.New("connection reset by peer")}),
		&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: "x", Server: innerAddresses[0] + ":53"}},
		&net.DNSError{Err: "dial udp " + innerAddresses[0] + ":53: connection refused", Name: "x"},
		&forbiddenError{"x.example", []string{"in a forbidden range (private)"}},
	} {
		if got := plainError(err); strings.Contains(got, innerAddresses[0]) || got == "" {
			t.Errorf("%T: %q", err, got)
		}
	}
}

func TestGuardHidesWhichPrivateAddressIsTheHosts(t *testing.T) {
	g := &guard{host: &hostAddrs{list: ownHostAddrs, now: time.Now}, allow: prefixes("192.168.0.0/16")}
	mine, other := g.check(netip.MustParseAddr("192.168.7.7")), (&guard{host: g.host}).check(netip.MustParseAddr("192.168.7.8"))
	if mine == "" || mine != other {
		t.Errorf("the host's own private address is %q, another %q", mine, other)
	}
	if got := g.check(netip.MustParseAddr("9.9.9.9")); got != "an address of the host itself" {
		t.Errorf("the host's public address is %q", got)
	}
}
