// Package freeport finds addresses for servers that listen later. The kernel takes ports out
// of a range for whoever connects to somewhere: one of those that was free a moment ago may be
// taken when the server starts. The addresses found here are outside of that range, and no
// other process finds the same.
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

// lowest is the first port that is looked at: below it are those of known services.
const (
	lowest  = 10000
	highest = 65535
)

// Take finds an address of this host, by its IP or name, where nobody listens. It stays the
// caller's until it is closed, or the process ends.
func Take(host string) (address string, taken io.Closer, err error) {
	first, n := room("/proc/sys/net/ipv4/ip_local_port_range")
	start := rand.IntN(n)
	for i := range n {
		port := first + (start+i)%n
		// An abstract name is seen where the port is, in one network namespace, and goes with
		// whoever listens to it.
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

// room is the first and the number of the ports that the kernel gives to nobody, on the
// side of its range that has more; and all, where the range leaves none.
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

// A Test is what a test gives to its helpers.
type Test interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// ForTest is an address of 127.0.0.1 that stays the test's until it ends.
func ForTest(t Test) string {
	t.Helper()
	address, taken, err := Take("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	return address
}
