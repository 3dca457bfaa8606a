package gateway

import (
	"fmt"
	"net/netip"

	"github.com/bothy-dev/bothy"
)

// webPorts are the ports at which a name may be reached if the policy lists none: there the
// gateway can check that a connection is for the name it claims.
var webPorts = map[uint16]bool{80: true, 443: true}

// resolverPorts carry DNS. A CIDR rule opens them only if the policy lists them, because another
// resolver is a way around every rule about names.
var resolverPorts = map[uint16]bool{53: true, 853: true}

// policy is a bothy.Network prepared for decisions. It never changes.
type policy struct {
	mode    bothy.NetworkMode
	domains domains
	cidrs   []netip.Prefix
	// denied are closed in mode open, except for what domains and cidrs
	// contain.
	denied []netip.Prefix
	// ports is nil if the policy lists none.
	ports map[uint16]bool
}

// verdict is the decision about one destination.
type verdict struct {
	allowed bool
	// rule allowed it, or reason refused it.
	rule   string
	reason string
}

func allow(rule string) verdict { return verdict{allowed: true, rule: rule} }

func refuse(format string, args ...any) verdict {
	return verdict{reason: fmt.Sprintf(format, args...)}
}

// refusalText is the sentence with which the sandbox is told why something was refused.
func refusalText(reason string) string {
	return "Refused by the network policy of this sandbox: " + reason + "."
}

var shut = &policy{mode: bothy.NetworkOff}

// maxRules bounds each list of a policy.
const maxRules = 4096

// CheckPolicy refuses a policy that SetPolicy would refuse. Presets are those
// of the gateways, or nil for the ones that come with Bothy.
func CheckPolicy(n bothy.Network, presets Presets) error {
	if presets == nil {
		presets = DefaultPresets()
	}
	_, err := compile(n, presets)
	return err
}

// CheckReach returns an error if a policy keeps a sandbox from a server, and says which rule it
// lacks. host is a name or an address.
func CheckReach(n bothy.Network, presets Presets, host string, port uint16) error {
	if presets == nil {
		presets = DefaultPresets()
	}
	p, err := compile(n, presets)
	if err != nil {
		return err
	}
	v, rule := p.nameAt(host, port), fmt.Sprintf("%q in allow_domains", host)
	if addr, err := netip.ParseAddr(host); err == nil {
		v, rule = p.addrAt(addr, port), fmt.Sprintf("\"%s/%d\" in allow_cidrs", addr, addr.BitLen())
	}
	if v.allowed {
		return nil
	}
	if p.ports != nil && !p.ports[port] || p.ports == nil && !webPorts[port] {
		rule += fmt.Sprintf(" and %d in allow_ports", port)
	}
	return bothy.Errorf(bothy.CodeInvalid, "the sandbox's network does not let it reach %s: %s", host, v.reason).
		WithHint("It needs mode restricted with %s.", rule)
}

// compile checks n and prepares it. Presets are given by their names.
func compile(n bothy.Network, presets Presets) (*policy, error) {
	p := &policy{mode: n.Mode}
	switch n.Mode {
	case "":
		p.mode = bothy.NetworkOff
	case bothy.NetworkOff, bothy.NetworkOpen, bothy.NetworkRestricted:
	default:
		return nil, bothy.Errorf(bothy.CodeInvalid, "network mode %q is not known", n.Mode).
			WithHint("Use off, restricted or open.")
	}
	for list, count := range map[string]int{
		"presets": len(n.Presets), "allow_domains": len(n.AllowDomains), "allow_cidrs": len(n.AllowCIDRs), "allow_ports": len(n.AllowPorts),
		"deny_cidrs": len(n.DenyCIDRs),
	} {
		if count > maxRules {
			return nil, bothy.Errorf(bothy.CodeInvalid, "%s has %d entries", list, count).
				WithHint("Give at most %d; a wildcard such as *.example.org covers many names.", maxRules)
		}
	}
	names := n.Presets
	if p.mode == bothy.NetworkRestricted && n.IsPlain() {
		names = presets.Names()
	}
	for _, name := range names {
		if err := presets.addTo(&p.domains, name); err != nil {
			return nil, err
		}
	}
	for _, d := range n.AllowDomains {
		if err := p.domains.add(d, "domain:"+d); err != nil {
			return nil, err
		}
	}
	for _, c := range n.AllowCIDRs {
		if !c.IsValid() || !c.Addr().Is4() {
			return nil, bothy.Errorf(bothy.CodeInvalid, "%s is not an IPv4 network", c).
				WithHint("A sandbox has IPv4 only; write networks as in 192.0.2.0/24.")
		}
		p.cidrs = append(p.cidrs, c.Masked())
	}
	if err := p.deny(n.DenyCIDRs); err != nil {
		return nil, err
	}
	for _, port := range n.AllowPorts {
		if port == 0 {
			return nil, bothy.Errorf(bothy.CodeInvalid, "0 is not a port").WithHint("Use ports from 1 to 65535.")
		}
		if p.ports == nil {
			p.ports = map[uint16]bool{}
		}
		p.ports[port] = true
	}
	return p, nil
}

// name decides whether name may be looked up.
func (p *policy) name(name string) verdict {
	switch p.mode {
	case bothy.NetworkOpen:
		if rule, ok := p.exception(name); ok {
			return allow(rule)
		}
		return allow("mode:open")
	case bothy.NetworkRestricted:
		if rule, ok := p.domains.match(name); ok {
			return allow(rule)
		}
		return refuse("%s is not on the list", name)
	}
	return refuse("the network is off")
}

// nameAt decides whether name may be reached at port over TCP.
func (p *policy) nameAt(name string, port uint16) verdict {
	v := p.name(name)
	if !v.allowed {
		return v
	}
	if p.ports != nil && !p.ports[port] {
		return refuse("port %d is not on the list", port)
	}
	if p.ports == nil && p.mode == bothy.NetworkRestricted && !webPorts[port] {
		return refuse("port %d of a named host needs allow_ports", port)
	}
	return v
}

// addrAt decides whether the bare address may be reached at port. It does not
// know the forbidden ranges; the guard does.
func (p *policy) addrAt(addr netip.Addr, port uint16) verdict {
	switch {
	case p.mode != bothy.NetworkOpen && p.mode != bothy.NetworkRestricted:
		return refuse("the network is off")
	case p.ports != nil && !p.ports[port]:
		return refuse("port %d is not on the list", port)
	case p.mode == bothy.NetworkOpen:
		if reason := p.denies(addr); reason != "" {
			return refuse("%s is %s", addr, reason)
		}
		return allow("mode:open")
	}
	for _, c := range p.cidrs {
		if !c.Contains(addr) {
			continue
		}
		if resolverPorts[port] && p.ports == nil {
			return refuse("port %d of another resolver needs allow_ports", port)
		}
		return allow("cidr:" + c.String())
	}
	return refuse("the address %s is on no list; names are reached through DNS at %s", addr, bothy.GatewayAddr)
}
