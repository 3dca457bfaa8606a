package gateway

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func mustCompile(t *testing.T, n bothy.Network) *policy {
	t.Helper()
	p, err := compile(n, DefaultPresets())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDomainPatterns(t *testing.T) {
	p := mustCompile(t, only("api.example.com", "*.example.org", "*.B\u00fccher.example", "UPPER.example.", "_x.under_score.example"))
	for name, want := range map[string]bool{
		"api.example.com":                         true,
		"API.Example.Com.":                        true,
		"www.api.example.com":                     false,
		"example.com":                             false,
		"a.example.org":                           true,
		"a.b.c.example.org":                       true,
		"example.org":                             false,
		"evil-example.org":                        false,
		"evilexample.org":                         false,
		"example.org.evil":                        false,
		"a.example.org.evil":                      false,
		"org":                                     false,
		"upper.example":                           true,
		"a.xn--bcher-kva.example":                 true,
		"A.XN--BCHER-KVA.example":                 true,
		"a.b\u00fccher.example":                   true,
		"xn--bcher-kva.example":                   false,
		"_x.under_score.example":                  true,
		"api\u3002example\u3002com":               true,  // The ideographic full stop counts as a dot.
		"api.example.com\u200b":                   true,  // A zero-width space is ignored.
		"\u0430pi.example.com":                    false, // A Cyrillic letter is a different letter.
		"api.example.com..":                       false,
		".example.org":                            false,
		"a..example.org":                          false,
		"*.example.org":                           false,
		"a\x00.example.org":                       false,
		"a.example.org/evil":                      false,
		"":                                        false,
		strings.Repeat("a.", 130) + "example.org": false,
		strings.Repeat("a", 64) + ".example.org":  false,
	} {
		got := false
		if canonical, ok := canonicalName(name); ok {
			got = p.name(canonical).allowed
		}
		if got != want {
			t.Errorf("%q: allowed %v, want %v", name, got, want)
		}
	}
}

func TestBadPoliciesAreRefused(t *testing.T) {
	for _, n := range []bothy.Network{
		{Mode: "everything"},
		{Mode: bothy.NetworkRestricted, Presets: []string{"nope"}},
		only("*"), only("*."), only("a.*.example"), only("**.example"), only(""), only("."), only("http://api.example"), only("api.example:443"), only("api example"),
		only("1.2.3.4"), only("*.2.3.4"), only("0x7f.1"), only("2130706433"), only("::1"),
		{Mode: bothy.NetworkRestricted, AllowCIDRs: prefixes("2001:db8::/32")},
		{Mode: bothy.NetworkRestricted, AllowCIDRs: prefixes("::ffff:1.2.3.4/128")},
		{Mode: bothy.NetworkRestricted, AllowCIDRs: []netip.Prefix{{}}},
		{Mode: bothy.NetworkRestricted, AllowPorts: []uint16{0}},
	} {
		_, err := compile(n, DefaultPresets())
		if bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%+v: %v", n, err)
		} else if bothy.AsError(err).Detail == "" || bothy.AsError(err).Hint == "" {
			t.Errorf("%+v: the error lacks details: %v", n, err)
		}
	}
}

func TestBadPolicyChangesNothing(t *testing.T) {
	l := newLab(t)
	l.policy(only("good.example"))
	if err := l.gateway.SetPolicy(only("*")); err == nil {
		t.Fatal("accepted")
	}
	if v := l.gateway.currentPolicy().name("good.example"); !v.allowed || v.rule != "domain:good.example" {
		t.Errorf("the policy is now %+v", v)
	}
}

func TestPortsAndAddresses(t *testing.T) {
	addr := netip.MustParseAddr
	plain := mustCompile(t, bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"a.example"}, AllowCIDRs: prefixes("5.6.7.9/24")})
	ports := mustCompile(t, bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"a.example"}, AllowCIDRs: prefixes("5.6.7.0/24"), AllowPorts: []uint16{22, 53}})
	openPorts := mustCompile(t, bothy.Network{Mode: bothy.NetworkOpen, AllowPorts: []uint16{443}})
	closed := mustCompile(t, bothy.Network{Mode: bothy.NetworkOff, AllowDomains: []string{"a.example"}, AllowCIDRs: prefixes("0.0.0.0/0")})
	for what, c := range map[string]struct {
		v    verdict
		want bool
	}{
		"a name on 443":               {plain.nameAt("a.example", 443), true},
		"a name on 80":                {plain.nameAt("a.example", 80), true},
		"a name on 22":                {plain.nameAt("a.example", 22), false},
		"a network on any port":       {plain.addrAt(addr("5.6.7.8"), 12345), true},
		"a network on 53":             {plain.addrAt(addr("5.6.7.8"), 53), false},
		"a network on 853":            {plain.addrAt(addr("5.6.7.8"), 853), false},
		"outside the network":         {plain.addrAt(addr("5.6.8.8"), 443), false},
		"a name on a listed port":     {ports.nameAt("a.example", 22), true},
		"a name on 443, not listed":   {ports.nameAt("a.example", 443), false},
		"a network on 53, listed":     {ports.addrAt(addr("5.6.7.8"), 53), true},
		"a network on 80, not listed": {ports.addrAt(addr("5.6.7.8"), 80), false},
		"open on a listed port":       {openPorts.addrAt(addr("5.6.7.8"), 443), true},
		"open on another port":        {openPorts.addrAt(addr("5.6.7.8"), 80), false},
		"off, a listed name":          {closed.nameAt("a.example", 443), false},
		"off, a listed network":       {closed.addrAt(addr("5.6.7.8"), 443), false},
		"no policy at all":            {shut.addrAt(addr("5.6.7.8"), 443), false},
	} {
		if c.v.allowed != c.want || c.v.allowed == (c.v.rule == "") || c.v.allowed == (c.v.reason != "") {
			t.Errorf("%s: %+v", what, c.v)
		}
	}
}

func TestPresets(t *testing.T) {
	want := []string{"crates", "debian", "github", "go", "llm", "npm", "pypi"}
	if got := DefaultPresets().Names(); !slices.Equal(got, want) {
		t.Fatalf("presets %v, want %v", got, want)
	}
	p := mustCompile(t, restricted)
	for name, rule := range map[string]string{
		"github.com": "preset:github", "api.github.com": "preset:github", "a.debian.org": "preset:debian", "debian.org": "preset:debian",
		"a.pythonhosted.org": "preset:pypi", "api.anthropic.com": "preset:llm", "api.openai.com": "preset:llm",
	} {
		if v := p.name(name); v.rule != rule {
			t.Errorf("%s: %+v, want %s", name, v, rule)
		}
	}
	for _, name := range []string{"example.com", "evilgithub.com", "github.com.evil.example", "storage.googleapis.com", "com", "io"} {
		if v := p.name(name); v.allowed {
			t.Errorf("%s is allowed by %s", name, v.rule)
		}
	}
	one := mustCompile(t, bothy.Network{Mode: bothy.NetworkRestricted, Presets: []string{"github"}})
	if one.name("a.debian.org").allowed || !one.name("github.com").allowed {
		t.Error("one preset also allows the domains of another")
	}
	listed := mustCompile(t, only("a.example"))
	if listed.name("github.com").allowed {
		t.Error("a custom list also allows the presets")
	}
}

func TestForbiddenAddresses(t *testing.T) {
	host := &hostAddrs{list: ownHostAddrs, now: systemClock{}.Now}
	g := &guard{host: host}
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.0.0.2", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254",
		"169.254.169.254", "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.168.0.1", "198.18.0.1", "198.19.255.255",
		"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "9.9.9.9",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1",
		"2002:7f00:1::", "2001::1", "2001:db8::1", "fc00::1", "fd12::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "100::1", "4000::1",
	} {
		if g.check(netip.MustParseAddr(a)) == "" {
			t.Errorf("%s may be reached", a)
		}
	}
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "198.20.0.1", "223.255.255.255", "2606:4700::1", "::ffff:8.8.8.8"} {
		if reason := g.check(netip.MustParseAddr(a)); reason != "" {
			t.Errorf("%s: %s", a, reason)
		}
	}
}

func TestOperatorAllowsAndDeniesNetworks(t *testing.T) {
	host := &hostAddrs{list: ownHostAddrs, now: systemClock{}.Now}
	g := &guard{allow: prefixes("192.168.0.0/16", "10.1.0.0/16"), forbid: prefixes("8.8.0.0/16", "10.1.2.0/24"), host: host}
	for a, want := range map[string]bool{
		"192.168.1.1": true, "::ffff:192.168.1.1": true, "192.168.7.7": false, "10.1.1.1": true, "10.1.2.3": false, "10.2.0.1": false, "8.8.8.8": false, "8.9.8.8": true,
	} {
		if reason := g.check(netip.MustParseAddr(a)); (reason == "") != want {
			t.Errorf("%s: %q, want reachable %v", a, reason, want)
		}
	}
	g.allow = append(g.allow, netip.MustParsePrefix("192.168.7.7/32"))
	if reason := g.check(netip.MustParseAddr("192.168.7.7")); reason != "" {
		t.Errorf("the host's address, which the operator allows: %s", reason)
	}
}

func TestNothingIsReachableWhenTheHostsAddressesAreUnknown(t *testing.T) {
	g := &guard{host: &hostAddrs{list: func() ([]netip.Addr, error) { return nil, net.ErrClosed }, now: systemClock{}.Now}}
	if g.check(netip.MustParseAddr("8.8.8.8")) == "" {
		t.Error("the guard allows a connection")
	}
}

func TestReachOfAServerIsTold(t *testing.T) {
	named := bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"git.example.org"}}
	withPorts := named
	withPorts.AllowPorts = []uint16{443, 8443}
	for _, c := range []struct {
		n    bothy.Network
		host string
		port uint16
		hint string // empty if it may be reached
	}{
		{bothy.Network{Mode: bothy.NetworkOpen}, "git.example.org", 443, ""},
		{named, "git.example.org", 443, ""},
		{withPorts, "git.example.org", 8443, ""},
		{bothy.Network{}, "git.example.org", 443, `mode restricted with "git.example.org" in allow_domains.`},
		{named, "other.example.org", 443, `"other.example.org" in allow_domains.`},
		{named, "git.example.org", 8443, `"git.example.org" in allow_domains and 8443 in allow_ports.`},
		{withPorts, "git.example.org", 80, `and 80 in allow_ports.`},
		{named, "192.0.2.1", 443, `"192.0.2.1/32" in allow_cidrs.`},
	} {
		err := CheckReach(c.n, nil, c.host, c.port)
		if c.hint == "" && err != nil || c.hint != "" && (bothy.ErrorCode(err) != bothy.CodeInvalid || !strings.Contains(bothy.AsError(err).Hint, c.hint)) {
			t.Errorf("%s:%d with %+v: %v", c.host, c.port, c.n, err)
		}
	}
}
