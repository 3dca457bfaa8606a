package gateway

import (
	"context"
	"io"
	"net"
	"net/netip"
)

// A host that shares a database with others may be declared dead while it still runs. Another
// host then runs its sandboxes, and nothing of them may leave this one. So Options.Await, if
// given, is called before each connection, each look-up and each write.

// gatedDialer makes connections that call await before each write.
type gatedDialer struct {
	Dialer
	await func(context.Context) error
}

func (d gatedDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := d.await(ctx); err != nil {
		return nil, err
	}
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	g := gate{await: d.await}
	g.ctx, g.shut = context.WithCancel(context.Background())
	switch c := c.(type) {
	case *net.TCPConn:
		return &gatedTCP{c, g}, nil
	case *net.UDPConn:
		return &gatedUDP{c, g}, nil
	}
	return &gatedConn{c, g}, nil
}

// gate lets the writes of a connection through.
type gate struct {
	await func(context.Context) error
	// ctx ends with the connection.
	ctx  context.Context
	shut context.CancelFunc
}

// pass waits until this host may speak, or the connection is closed.
func (g *gate) pass() error { return g.await(g.ctx) }

type gatedTCP struct {
	*net.TCPConn
	gate
}

func (c *gatedTCP) Write(p []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.TCPConn.Write(p)
}

// ReadFrom copies through Write, which checks each time.
func (c *gatedTCP) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

func (c *gatedTCP) Close() error {
	c.shut()
	return c.TCPConn.Close()
}

type gatedUDP struct {
	*net.UDPConn
	gate
}

func (c *gatedUDP) Write(p []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.UDPConn.Write(p)
}

func (c *gatedUDP) Close() error {
	c.shut()
	return c.UDPConn.Close()
}

type gatedConn struct {
	net.Conn
	gate
}

func (c *gatedConn) Write(p []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *gatedConn) Close() error {
	c.shut()
	return c.Conn.Close()
}

// gatedResolver looks names up once this host may speak.
type gatedResolver struct {
	Resolver
	await func(context.Context) error
}

func (r gatedResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if err := r.await(ctx); err != nil {
		return nil, err
	}
	return r.Resolver.LookupNetIP(ctx, network, host)
}
