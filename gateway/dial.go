package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// outerTime bounds each step of reaching what a Transport reaches.
const outerTime = 30 * time.Second

// Transport asks servers whose addresses somebody else has chosen. Its connections lead
// to the internet and to what allow names, and not to this host, a private network or
// what forbid names. It uses no proxy, which would reach them in its place.
func Transport(allow, forbid []netip.Prefix) *http.Transport {
	g := &guard{allow: allow, forbid: forbid, host: theHost}
	d := &net.Dialer{Timeout: outerTime, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if why := g.check(to.Addr()); why != "" {
			return fmt.Errorf("the address is %s", why)
		}
		return nil
	}}
	return &http.Transport{
		DialContext: d.DialContext, TLSHandshakeTimeout: outerTime, ResponseHeaderTimeout: outerTime,
		MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
	}
}
