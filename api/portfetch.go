package api

import (
	"context"
	"net"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/keepalive"
)

// PortFetcher is what a bothy.PortService can do that keeps connections to the
// HTTP servers inside sandboxes.
type PortFetcher interface {
	// FetchPort sends a request to the server on a port, for which
	// keepalive.Keepable holds. The answer's body must be closed.
	FetchPort(req *http.Request, id string, port uint16) (*http.Response, error)
}

// portTransport brings requests to the ports that their contexts name.
type portTransport struct {
	fetcher PortFetcher // or nil
	// own makes a connection for each request, and ends it.
	own http.RoundTripper
}

func newPortTransport(ports bothy.PortService) *portTransport {
	fetcher, _ := ports.(PortFetcher)
	return &portTransport{fetcher, &http.Transport{
		// A connection holds its sandbox awake for as long as it is there.
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: keepalive.MaxHeader,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			t := targetOf(ctx)
			return ports.DialPort(ctx, t.sandbox, t.port)
		},
	}}
}

// RoundTrip implements http.RoundTripper.
func (p *portTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.fetcher == nil || !keepalive.Keepable(req) {
		return p.own.RoundTrip(req)
	}
	t := targetOf(req.Context())
	return p.fetcher.FetchPort(req, t.sandbox, t.port)
}
