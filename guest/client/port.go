package client

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	tunnelProtocol = "bothy-tunnel"
	// maxRefusal bounds the error that a guest may send when it refuses a tunnel.
	maxRefusal = 64 << 10
)

// DialPort connects to a server on the sandbox's own loopback, through the
// guest. It implements bothy.PortDialer.
func (c *Client) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	return c.tunnel(ctx, fmt.Sprintf("/bothy/tunnel?port=%d", port), nil)
}

// DialSSH connects to an SSH server that the guest starts for this connection. It implements
// bothy.SSHDialer.
func (c *Client) DialSSH(ctx context.Context, req bothy.SSHRequest) (net.Conn, error) {
	return c.tunnel(ctx, "/bothy/ssh?user="+url.QueryEscape(req.User),
		http.Header{"X-Bothy-Host-Key": {base64.StdEncoding.EncodeToString(req.HostKeySeed)}})
}

// tunnel upgrades a connection for a stream of bytes.
func (c *Client) tunnel(ctx context.Context, target string, h http.Header) (net.Conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	t, err := c.upgrade(conn, target, h)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return t, nil
}

func (c *Client) upgrade(conn net.Conn, target string, h http.Header) (net.Conn, error) {
	req, err := http.NewRequest(http.MethodGet, "http://guest"+target, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, h)
	req.Header.Set("X-Access-Token", *c.key.Load())
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", tunnelProtocol)
	if err := req.Write(conn); err != nil {
		return nil, unreachable(err)
	}
	// The server's first bytes may arrive with the answer, and are beyond the bound: it is
	// lifted when the header has been read.
	limited := &io.LimitedReader{R: conn, N: maxHeader}
	r := bufio.NewReader(limited)
	res, err := http.ReadResponse(r, req)
	if err != nil {
		if limited.N <= 0 {
			err = errTooLong
		}
		return nil, unreachable(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		limited.N = maxRefusal
		body, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
		return nil, responseError(res, body)
	}
	limited.N = math.MaxInt64
	return &tunnel{Conn: conn, r: r}, nil
}

// tunnel first reads what arrived with the answer.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

func (t *tunnel) Read(p []byte) (int, error) { return t.r.Read(p) }

// Quiet reports that neither bytes nor an end of stream are pending, as far as the connection
// can tell.
func (t *tunnel) Quiet() bool {
	q, ok := t.Conn.(interface{ Quiet() bool })
	return ok && t.r.Buffered() == 0 && q.Quiet()
}

// CloseWrite tells the server inside that no more data follows.
func (t *tunnel) CloseWrite() error {
	if half, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return t.Conn.Close()
}

var (
	_ bothy.PortDialer = (*Client)(nil)
	_ bothy.SSHDialer  = (*Client)(nil)
)
