package ports

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/keepalive"
)

// PortFetcher is implemented by a bothy.PortService that pools connections to
// the HTTP servers inside sandboxes.
type PortFetcher interface {
	// FetchPort sends a request to the server on a port, for which
	// keepalive.Keepable holds. The answer's body must be closed.
	FetchPort(req *http.Request, id string, port uint16) (*http.Response, error)
}

// portTransport sends requests to the ports that their contexts name.
type portTransport struct {
	fetcher PortFetcher // or nil
	// own makes a connection for each request, and closes it afterwards.
	own http.RoundTripper
}

func newPortTransport(ports bothy.PortService) *portTransport {
	fetcher, _ := ports.(PortFetcher)
	return &portTransport{fetcher, &http.Transport{
		// A connection keeps its sandbox awake as long as it exists.
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: keepalive.MaxHeader,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			t := targetOf(ctx)
			return ports.DialPort(ctx, t.Sandbox, t.Port)
		},
	}}
}

// RoundTrip implements http.RoundTripper.
func (p *portTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.fetcher == nil || !keepalive.Keepable(req) {
		return p.own.RoundTrip(req)
	}
	t := targetOf(req.Context())
	return p.fetcher.FetchPort(req, t.Sandbox, t.Port)
}

// partFlush is how long a part of an answer waits for more of it if the answer's length is
// known, so that a small one is sent in one piece. Answers of unknown length, such as event
// streams, are sent as they arrive.
const partFlush = time.Millisecond

// sendWhole sends an answer whose length is known before the request is logged.
func sendWhole(w http.ResponseWriter) {
	if w.Header().Get("Content-Length") != "" {
		_ = http.NewResponseController(w).Flush()
	}
}

// bufferPool provides the buffers through which answers are copied.
type bufferPool struct{ sync.Pool }

var proxyBuffers = bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte { return p.Pool.Get().(*[32 << 10]byte)[:] }

// Put implements httputil.BufferPool.
func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[32 << 10]byte)(b)) }
