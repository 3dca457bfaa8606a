package gateway

import (
	"context"
	"errors"
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
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, withoutAddresses(err)
			}
			return plainConn{c}, nil
		},
		TLSHandshakeTimeout: outerTime, ResponseHeaderTimeout: outerTime,
		MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
	}
}

// withoutAddresses returns an error of the network without this host's addresses and its name
// server, since whoever chose the URL sees it.
func withoutAddresses(err error) error {
	var name *net.DNSError
	if errors.As(err, &name) {
		c := *name
		c.Server, c.UnwrapErr = "", nil
		if c.Err = "the name server did not answer"; c.IsNotFound {
			c.Err = "no such host"
		}
		return &net.OpError{Op: "dial", Net: "tcp", Err: &c}
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return &net.OpError{Op: op.Op, Net: op.Net, Err: op.Err}
	}
	return err
}

// plainConn is a connection whose errors hold no addresses.
type plainConn struct{ net.Conn }

func (c plainConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, withoutAddresses(err)
}

func (c plainConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, withoutAddresses(err)
}
