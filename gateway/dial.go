package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// outerTime limits each step of a Transport's connections.
const outerTime = 30 * time.Second

// Transport is for requests to addresses chosen by users. Its connections lead to the internet
// and to networks in allow, but not to this host, a private network or a network in forbid. It
// uses no proxy, which could reach those.
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
