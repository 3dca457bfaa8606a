package gateway

import (
	"fmt"
	"net/netip"
	"syscall"
)

// Guard returns a check for net.Dialer.Control: connections lead to the internet and
// to what allow names, and not to this host, a private network or what forbid names. The
// server itself dials through it where somebody else has chosen the address.
func Guard(allow, forbid []netip.Prefix) func(network, address string, _ syscall.RawConn) error {
	g := &guard{allow: allow, forbid: forbid, host: theHost}
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if why := g.check(to.Addr()); why != "" {
			return fmt.Errorf("the address is %s", why)
		}
		return nil
	}
}
