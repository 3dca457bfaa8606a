// Package freeport finds addresses for servers that listen later. The kernel assigns ports of a
// range to outgoing connections, so a port of that range that was free a moment ago may be taken
// when the server starts. The addresses found here are outside that range, and no other process
// finds the same ones.
package freeport

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
)

// lowest is the first port that is tried: those below belong to known services.
const (
	lowest  = 10000
	highest = 65535
)

// Take finds an address of this host, by its IP or name, on which nothing listens. It remains
// the caller's until it is closed, or the process ends.
func Take(host string) (address string, taken io.Closer, err error) {
	first, n := room("/proc/sys/net/ipv4/ip_local_port_range")
	start := rand.IntN(n)
	for i := range n {
		port := first + (start+i)%n
		// An abstract socket name is visible in the same network namespace as the port, and
		// disappears with its listener.
		lock, err := net.Listen("unix", fmt.Sprintf("@bothy-port-%d", port))
		if err != nil {
			continue
		}
		address := net.JoinHostPort(host, strconv.Itoa(port))
		l, err := net.Listen("tcp", address)
		if err == nil {
			return address, lock, l.Close()
		}
		lock.Close()
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			return "", nil, err
		}
	}
	return "", nil, fmt.Errorf("none of %d ports of %q is free", n, host)
}

// room returns the first and the number of the ports that the kernel never assigns, on the
// larger side of its range; all ports, if the range leaves none.
func room(file string) (first, n int) {
	from, to := 32768, 60999 // Linux's own
	if b, err := os.ReadFile(file); err == nil {
		_, _ = fmt.Sscan(string(b), &from, &to)
	}
	below, above := from-lowest, highest-to
	switch {
	case below >= above && below > 0:
		return lowest, below
	case above > 0:
		return to + 1, above
	}
	return lowest, highest - lowest + 1
}

// A Test is the part of testing.TB that is needed here.
type Test interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// ForTest returns an address of 127.0.0.1 that is reserved until the test ends.
func ForTest(t Test) string {
	t.Helper()
	address, taken, err := Take("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	return address
}
