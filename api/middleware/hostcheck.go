package middleware

import (
	"net"
	"strings"

	"github.com/bothy-dev/bothy"
)

// HostCheck protects a listener on the loopback interface from web pages whose own name resolves
// to it (DNS rebinding). The zero value allows every name.
type HostCheck struct{ names map[string]bool }

func NewHostCheck(listen string, allowed []string, addr net.Addr) HostCheck {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() {
		return HostCheck{}
	}
	h := HostCheck{names: map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true, tcp.IP.String(): true}}
	if host, _, err := net.SplitHostPort(listen); err == nil {
		h.names[strings.ToLower(host)] = true
	}
	for _, name := range allowed {
		h.names[strings.ToLower(name)] = true
	}
	return h
}

func (h HostCheck) Check(hostport string) error {
	if h.names == nil {
		return nil
	}
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if h.names[host] {
		return nil
	}
	for rest := host; ; {
		_, parent, found := strings.Cut(rest, ".")
		if !found {
			break
		}
		if h.names["*."+parent] {
			return nil
		}
		rest = parent
	}
	return bothy.Errorf(bothy.CodeMisdirected, "this server is not %q", host).
		WithHint("Use 127.0.0.1 or localhost, or allow the name in the server's configuration (allowed_hosts).")
}
