package cli

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy/internal/freeport"
)

// The defaults of a server on this host.
const (
	defaultHome   = "/var/lib/bothy"
	defaultListen = "127.0.0.1:7700"
)

// home is where the server of this host keeps its state.
func home() string { return cmp.Or(os.Getenv("BOTHY_HOME"), defaultHome) }

// templatesHome is where the server of this host keeps its templates.
func templatesHome() string {
	return cmp.Or(os.Getenv("BOTHY_TEMPLATES"), filepath.Join(home(), "templates"))
}

// kernelsHome is where the server of this host keeps the kernels of virtual
// machines.
func kernelsHome() string {
	return cmp.Or(os.Getenv("BOTHY_KERNELS"), filepath.Join(home(), "kernels"))
}

// listenAddress is where the server of this host listens.
func listenAddress() string { return cmp.Or(os.Getenv("BOTHY_LISTEN"), defaultListen) }

// checkListen checks an address, and replaces port 0 by a port that stays free until done is
// called.
func checkListen(addr string) (listen string, done func(), err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", nil, usagef("Write it as in 127.0.0.1:7700.", "%q is not an address to listen on", addr)
	}
	if port != "0" {
		return addr, func() {}, nil
	}
	listen, taken, err := freeport.Take(host)
	if err != nil {
		return "", nil, fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	return listen, func() { _ = taken.Close() }, nil
}

// dialAddress is the address at which a client on this host reaches a server that listens on
// addr, which may mean all of the host's addresses.
func dialAddress(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
