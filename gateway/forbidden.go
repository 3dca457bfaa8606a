package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// forbiddenRanges are never reached from a sandbox, in any mode and under any name, unless the
// operator lifts one. The first match gives the reason.
var forbiddenRanges = []struct {
	prefix netip.Prefix
	what   string
}{
	{bothy.SandboxPrefix, "the sandbox's own network"},
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier-grade NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, where metadata services are"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved for protocols"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarks"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("64:ff9b::/96"), "NAT64"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "NAT64"},
	{netip.MustParsePrefix("2001::/23"), "reserved for protocols"},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
	{netip.MustParsePrefix("3fff::/20"), "documentation"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// globalIPv6 is the part of IPv6 that is assigned to the internet.
var globalIPv6 = netip.MustParsePrefix("2000::/3")

// hostAddrsAge is how long the list of the host's own addresses is trusted.
const hostAddrsAge = 5 * time.Second

// guard knows which addresses are forbidden whatever the policy says. Its methods may be called
// from many goroutines.
type guard struct {
	allow  []netip.Prefix
	forbid []netip.Prefix
	host   *hostAddrs
}

// check returns why addr is forbidden, or "". The reason goes into the sandbox's log, so it does
// not contain the address, which may come from a name, and does not tell which of the private
// addresses are the host's.
func (g *guard) check(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if contains(g.forbid, addr) {
		return "forbidden by the operator"
	}
	own := g.host.has(addr) && !addr.IsLoopback() && !g.named(addr)
	if contains(g.allow, addr) && !own {
		return ""
	}
	for _, r := range forbiddenRanges {
		if r.prefix.Contains(addr) {
			return fmt.Sprintf("in a forbidden range (%s)", r.what)
		}
	}
	if addr.Is6() && !globalIPv6.Contains(addr) {
		return "in a forbidden range (not global)"
	}
	if own {
		return "an address of the host itself"
	}
	return ""
}

// named reports whether the operator allowed addr itself, not just a network around it.
func (g *guard) named(addr netip.Addr) bool {
	for _, p := range g.allow {
		if p.IsSingleIP() && p.Addr() == addr {
			return true
		}
	}
	return false
}

func contains(list []netip.Prefix, addr netip.Addr) bool {
	for _, p := range list {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// hostAddrs is the set of the host's own addresses, which is reread when it is old. If it cannot
// be read, the last list stays.
type hostAddrs struct {
	list func() ([]netip.Addr, error)
	now  func() time.Time

	mu   sync.Mutex
	set  map[netip.Addr]bool
	read time.Time
}

// theHost is shared by all gateways of a process.
var theHost = &hostAddrs{list: interfaceAddrs, now: time.Now}

func (h *hostAddrs) has(addr netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); h.set == nil || now.Sub(h.read) > hostAddrsAge {
		h.read = now
		if list, err := h.list(); err == nil {
			h.set = make(map[netip.Addr]bool, len(list))
			for _, a := range list {
				h.set[a.Unmap().WithZone("")] = true
			}
		}
	}
	// If the host's addresses are unknown, every address is forbidden.
	return h.set == nil || h.set[addr]
}

func interfaceAddrs() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				addrs = append(addrs, ip.Unmap())
			}
		}
	}
	return addrs, nil
}
