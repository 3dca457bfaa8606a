package agent

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// tunnelProtocol is the protocol that the connection of a tunnel call is
	// upgraded to: the bytes of one TCP connection.
	tunnelProtocol = "bothy-tunnel"
	tunnelAnswer   = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + tunnelProtocol + "\r\n\r\n"
	tunnelTimeout  = 5 * time.Second
)

// tunnel connects to a server on the sandbox's own loopback, and turns the
// call's connection into that one.
func (a *Agent) tunnel(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.URL.Query().Get("port"), 10, 16)
	if err != nil || port == 0 {
		writeError(w, r, bothy.Errorf(bothy.CodeInvalid, "%q is not a port", r.URL.Query().Get("port")))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), tunnelTimeout)
	defer cancel()
	inner, err := dialLoopback(ctx, uint16(port))
	if err != nil {
		writeError(w, r, bothy.Errorf(bothy.CodeConflict, "nothing listens on port %d", port).Because(err))
		return
	}
	defer inner.Close()
	outer, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeError(w, r, err)
		return
	}
	defer outer.Close()
	_ = outer.SetDeadline(time.Time{})
	if _, err := io.WriteString(outer, tunnelAnswer); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(inner, buffered)
		_ = inner.CloseWrite()
	}()
	_, _ = io.Copy(outer, inner)
}

// dialLoopback tries both loopback addresses: a server may know only one.
func dialLoopback(ctx context.Context, port uint16) (*net.TCPConn, error) {
	var d net.Dialer
	var first error
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}
