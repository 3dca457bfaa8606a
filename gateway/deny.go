package gateway

import (
	"fmt"
	"net/netip"

	"github.com/bothy-dev/bothy"
)

// deny closes ranges of addresses to a sandbox that may reach everything else.
func (p *policy) deny(ranges []netip.Prefix) error {
	if len(ranges) > 0 && p.mode != bothy.NetworkOpen {
		return bothy.Errorf(bothy.CodeInvalid, "deny_cidrs cannot be combined with network mode %s, in which only what is allowed is open", p.mode).
			WithHint("Use mode open with deny_cidrs, or leave the ranges out of allow_cidrs.")
	}
	for _, c := range ranges {
		if !c.IsValid() {
			return bothy.Errorf(bothy.CodeInvalid, "deny_cidrs contains %s, which is not a network", c).
				WithHint("Write networks as in 192.0.2.0/24.")
		}
		p.denied = append(p.denied, c.Masked())
	}
	return nil
}

// exception reports whether a name is allowed even if its addresses are denied. Connections to
// it are tied to the name.
func (p *policy) exception(name string) (rule string, ok bool) {
	if p.mode != bothy.NetworkOpen || len(p.denied) == 0 {
		return "", false
	}
	return p.domains.match(name)
}

// denies returns why an address is closed in mode open, or "".
func (p *policy) denies(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if contains(p.cidrs, addr) {
		return ""
	}
	for _, c := range p.denied {
		if c.Contains(addr) {
			return fmt.Sprintf("in a range that is denied (%s)", c)
		}
	}
	return ""
}

// open returns the addresses of a name that the policy does not deny.
func (p *policy) open(name string, addrs []netip.Addr) ([]netip.Addr, error) {
	if _, ok := p.exception(name); ok || len(p.denied) == 0 {
		return addrs, nil
	}
	var left []netip.Addr
	var reason string
	for _, a := range addrs {
		if why := p.denies(a); why != "" {
			reason = why
		} else {
			left = append(left, a)
		}
	}
	if len(left) == 0 {
		return nil, &forbiddenError{name, []string{reason}}
	}
	return left, nil
}

// mayNowDeny reports whether an open connection may lead to an address that the policy denies:
// which of a name's addresses it uses is not recorded.
func (p *policy) mayNowDeny(t target) bool {
	if len(p.denied) == 0 || !t.standIn {
		return false
	}
	_, ok := p.exception(t.name)
	return !ok
}
