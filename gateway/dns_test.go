package gateway

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestResolverGivesStandInsForListedNames(t *testing.T) {
	l := newLab(t)
	l.net.name("api.example.com", "5.6.7.8")
	l.net.name("www.example.com", "5.6.7.8")
	l.policy(only("api.example.com", "*.example.com"))
	for _, network := range []string{"udp", "tcp"} {
		m := l.query(network, "API.Example.COM", dns.TypeA)
		if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 {
			t.Fatalf("%s: %v", network, m)
		}
		a := m.Answer[0].(*dns.A)
		addr, _ := netip.AddrFromSlice(a.A)
		if !standIns.Contains(addr.Unmap()) {
			t.Errorf("%s: the answer %s is not from the pool", network, addr)
		}
		if a.Hdr.Name != "API.Example.COM." || a.Hdr.Ttl == 0 || a.Hdr.Ttl > 60 {
			t.Errorf("%s: header %v", network, a.Hdr)
		}
	}
	if a, b := l.lookup("api.example.com"), l.lookup("www.example.com"); a == b {
		t.Errorf("two names at one address share the stand-in %s", a)
	}
	if a, b := l.lookup("api.example.com"), l.lookup("api.example.com."); a != b {
		t.Errorf("one name has the stand-ins %s and %s", a, b)
	}
}

func TestResolverRefusesWithoutAsking(t *testing.T) {
	l := newLab(t)
	l.policy(only("api.example.com", "*.example.org"))
	long := strings.Repeat(strings.Repeat("a", 60)+".", 3) + "evil.example"
	for _, name := range []string{"evil.example", "example.com", "example.org", "evil-example.org", "example.org.evil", "api.example.com.evil", long, "localhost"} {
		if m := l.query("udp", name, dns.TypeA); m.Rcode != dns.RcodeNameError || len(m.Extra) > 0 {
			t.Errorf("%s: got %v, want NXDOMAIN", name, m)
		}
		if m := l.query("udp", name, dns.TypeTXT); m.Rcode != dns.RcodeNameError {
			t.Errorf("TXT %s: got %s, want NXDOMAIN", name, dns.RcodeToString[m.Rcode])
		}
	}
	if _, asked := l.net.seen(); len(asked) > 0 {
		t.Errorf("queries left the host: %v", asked)
	}
}

// Who asks with EDNS is told why, in the words of the log and of a refused HTTP request.
func TestResolverSaysWhyItRefuses(t *testing.T) {
	l := newLab(t)
	l.policy(only("api.example.com"))
	q := new(dns.Msg)
	q.SetQuestion("evil.example.", dns.TypeAAAA)
	q.SetEdns0(1232, false)
	query, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	m := new(dns.Msg)
	if err := m.Unpack(l.gateway.answer(query, true)); err != nil || m.Rcode != dns.RcodeNameError || m.IsEdns0() == nil || len(m.IsEdns0().Option) != 1 {
		t.Fatalf("%v, %v", m, err)
	}
	const want = "Refused by the network policy of this sandbox: evil.example is not on the list."
	if e, ok := m.IsEdns0().Option[0].(*dns.EDNS0_EDE); !ok || e.InfoCode != dns.ExtendedErrorCodeBlocked || e.ExtraText != want {
		t.Errorf("%v", m)
	}
	if page := string(forbiddenPage("evil.example is not on the list")); !strings.Contains(page, want) {
		t.Errorf("%s", page)
	}
}

func TestResolverRefusesEverythingWhenOff(t *testing.T) {
	l := newLab(t)
	l.net.name("api.example.com", "5.6.7.8")
	if m := l.query("udp", "api.example.com", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("got %s", dns.RcodeToString[m.Rcode])
	}
	if _, err := l.queryAt("tcp", "10.0.0.1:53", "api.example.com", dns.TypeA); err == nil {
		t.Error("DNS over TCP answered in mode off")
	}
	if _, asked := l.net.seen(); len(asked) > 0 {
		t.Errorf("queries left the host: %v", asked)
	}
}

func TestResolverHasNoIPv6AndNoKeysForHiddenNames(t *testing.T) {
	l := newLab(t)
	l.net.name("api.example.com", "5.6.7.8", "2606:4700::1")
	for _, n := range []string{"restricted", "open"} {
		if n == "open" {
			l.policy(open)
		} else {
			l.policy(only("api.example.com"))
		}
		for _, kind := range []uint16{dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB} {
			m := l.query("udp", "api.example.com", kind)
			if m.Rcode != dns.RcodeSuccess || len(m.Answer) > 0 {
				t.Errorf("%s, type %s: %v", n, dns.TypeToString[kind], m)
			}
		}
	}
}

func TestResolverSaysWhenANameDoesNotExist(t *testing.T) {
	l := newLab(t)
	l.policy(only("*.example.com"))
	if m := l.query("udp", "nope.example.com", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("got %s, want NXDOMAIN", dns.RcodeToString[m.Rcode])
	}
}

func TestResolverGivesRealAddressesInOpenWithoutForbiddenOnes(t *testing.T) {
	l := newLab(t)
	l.policy(open)
	l.net.name("mixed.example.com", "10.1.2.3", "5.6.7.8", "169.254.169.254", "::ffff:127.0.0.1")
	m := l.query("udp", "mixed.example.com", dns.TypeA)
	if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "5.6.7.8" {
		t.Errorf("got %v", m.Answer)
	}
	l.net.name("inside.example.com", "10.1.2.3")
	if m := l.query("udp", "inside.example.com", dns.TypeA); m.Rcode != dns.RcodeNameError || len(m.Answer) > 0 {
		t.Errorf("a name with private addresses only: %v", m)
	}
}

func TestResolverAsksOnceForManyQuestions(t *testing.T) {
	l := newLab(t)
	l.net.name("api.example.com", "5.6.7.8")
	l.policy(only("api.example.com"))
	for range 5 {
		l.lookup("api.example.com")
		l.query("udp", "api.example.com", dns.TypeAAAA)
	}
	if _, asked := l.net.seen(); len(asked) != 1 {
		t.Errorf("asked %v", asked)
	}
}

// txtInternet also answers queries for TXT records.
type txtInternet struct{ *internet }

func (i txtInternet) Exchange(_ context.Context, q dns.Question) ([]dns.RR, error) {
	if q.Name != "txt.example.com." {
		return nil, errNoName
	}
	rr, err := dns.NewRR("txt.example.com. 3600 IN TXT \"hello\"")
	return []dns.RR{rr}, errors.Join(err)
}

func TestOtherTypesAreAnsweredInOpenOnly(t *testing.T) {
	outside := newInternet(t)
	outside.name("txt.example.com", "5.6.7.8")
	l := newLab(t, func(o *Options) { o.Resolver = txtInternet{outside} })
	l.policy(open)
	m := l.query("udp", "txt.example.com", dns.TypeTXT)
	if len(m.Answer) != 1 || m.Answer[0].(*dns.TXT).Txt[0] != "hello" || m.Answer[0].Header().Ttl > 60 {
		t.Errorf("open: %v", m)
	}
	l.policy(only("txt.example.com"))
	if m := l.query("udp", "txt.example.com", dns.TypeTXT); m.Rcode != dns.RcodeSuccess || len(m.Answer) > 0 {
		t.Errorf("restricted: %v", m)
	}
}

func TestReverseLookupKnowsStandInsOnly(t *testing.T) {
	l := newLab(t)
	l.net.name("api.example.com", "5.6.7.8")
	l.policy(only("api.example.com"))
	name, _ := dns.ReverseAddr(l.lookup("api.example.com"))
	m := l.query("udp", name, dns.TypePTR)
	if len(m.Answer) != 1 || m.Answer[0].(*dns.PTR).Ptr != "api.example.com." {
		t.Errorf("got %v", m)
	}
	for _, addr := range []string{"10.0.0.5", "8.8.8.8"} {
		name, _ := dns.ReverseAddr(addr)
		if m := l.query("udp", name, dns.TypePTR); m.Rcode != dns.RcodeNameError {
			t.Errorf("%s: %s", addr, dns.RcodeToString[m.Rcode])
		}
	}
}

func TestResolverSurvivesMalformedQueries(t *testing.T) {
	l := newLab(t)
	l.net.name("api.example.com", "5.6.7.8")
	l.policy(open)
	c := l.dialUDP("10.0.0.1:53")
	for _, b := range [][]byte{{}, {0}, make([]byte, 12), make([]byte, 5000), []byte(strings.Repeat("\xc0\x0c", 300))} {
		_, _ = c.Write(b)
	}
	if l.lookup("api.example.com") != "5.6.7.8" {
		t.Error("the resolver no longer answers")
	}
}

func TestPoolForgetsTheOldestName(t *testing.T) {
	n := newNames(t.Context(), systemClock{}, nil)
	first := n.standIn("0.example.com")
	for i := range maxNames {
		n.standIn(strings.Repeat("a", 1+i%60) + "." + strings.Repeat("b", 1+i/60) + ".example.com")
	}
	if name := n.at(first); name != "" {
		t.Errorf("%s still stands for %s", first, name)
	}
	if len(n.byName) != maxNames || len(n.byAddr) != maxNames || n.used.Len() != maxNames {
		t.Errorf("the pool holds %d names, %d addresses", len(n.byName), len(n.byAddr))
	}
	if again := n.standIn("0.example.com"); again == first {
		t.Errorf("the address %s was reused at once", again)
	}
}
