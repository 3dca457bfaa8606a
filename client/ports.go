package client

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
)

// Metrics is the server's bothy.MetricsService.
type Metrics struct{ conn *conn }

// Metrics implements bothy.MetricsService.
func (m *Metrics) Metrics(ctx context.Context, id string) (*bothy.Metrics, error) {
	return get[bothy.Metrics](ctx, m.conn, http.MethodGet, sandboxPath(id, "/metrics"), nil, nil)
}

// MetricsHistory implements bothy.MetricsService.
func (m *Metrics) MetricsHistory(ctx context.Context, id string, from, to time.Time) ([]*bothy.Metrics, error) {
	q := url.Values{}
	setTime(q, "from", from)
	setTime(q, "to", to)
	return items[*bothy.Metrics](ctx, m.conn, http.MethodGet, sandboxPath(id, "/metrics/history"), q, nil)
}

// LatestMetrics implements bothy.MetricsService.
func (m *Metrics) LatestMetrics(ctx context.Context) ([]*bothy.SandboxMetrics, error) {
	return items[*bothy.SandboxMetrics](ctx, m.conn, http.MethodGet, "/v1/metrics", nil, nil)
}

// ServerMetrics returns the metrics of the whole server, as Prometheus reads them.
// The key needs the scope metrics:read in the default project.
func (m *Metrics) ServerMetrics(ctx context.Context) ([]byte, error) {
	r, err := m.conn.request(ctx, http.MethodGet, "/metrics", nil, nil)
	if err != nil {
		return nil, err
	}
	res, err := m.conn.send(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}

// Ports is the server's bothy.PortService.
type Ports struct{ conn *conn }

// DialPort implements bothy.PortService.
func (p *Ports) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	r, err := p.conn.request(ctx, http.MethodGet, sandboxPath(id, "/ports/", strconv.Itoa(int(port))), nil, nil)
	if err != nil {
		return nil, err
	}
	ws, _, err := p.conn.dial(ctx, r)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(-1)
	return websocket.NetConn(context.Background(), ws, websocket.MessageBinary), nil
}

// DialSSH connects to the SSH server of a sandbox, as a user; as the sandbox's own when empty. It
// also returns the server's host key, in the form of a known_hosts file.
func (p *Ports) DialSSH(ctx context.Context, id, user string) (c net.Conn, hostKey string, err error) {
	q := url.Values{}
	setIf(q, "user", user)
	r, err := p.conn.request(ctx, http.MethodGet, sandboxPath(id, "/ssh"), q, nil)
	if err != nil {
		return nil, "", err
	}
	ws, header, err := p.conn.dial(ctx, r)
	if err != nil {
		return nil, "", err
	}
	ws.SetReadLimit(-1)
	return websocket.NetConn(context.Background(), ws, websocket.MessageBinary), header.Get("X-Ssh-Host-Key"), nil
}

// dial opens a WebSocket at the request's address.
func (c *conn) dial(ctx context.Context, r *http.Request) (*websocket.Conn, http.Header, error) {
	ws, res, err := websocket.Dial(ctx, r.URL.String(), &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: r.Header})
	if err != nil {
		if res != nil && res.StatusCode >= 300 {
			return nil, nil, failure(res)
		}
		return nil, nil, c.unreachable(ctx, err)
	}
	return ws, res.Header, nil
}
