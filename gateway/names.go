package gateway

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// maxNames bounds the names that a gateway remembers.
	maxNames = 4096
	// maxAddrs bounds the addresses of one name.
	maxAddrs = 32
	// nameAge is how long a resolver's answer is used, and noNameAge how long a failure is.
	nameAge   = 30 * time.Second
	noNameAge = 3 * time.Second
	// lookupTime bounds one query to the resolver.
	lookupTime = 10 * time.Second
)

// standIns is the pool of addresses that stand for names. It is the range for
// benchmarks, which is not routed.
var standIns = netip.MustParsePrefix("198.18.0.0/15")

// errNoName is returned for a name that does not exist.
var errNoName = errors.New("no such name")

// names remembers which name each stand-in address is for, and the addresses that the names
// really have. It forgets the least recently used first.
type names struct {
	ctx    context.Context
	clock  bothy.Clock
	lookup func(ctx context.Context, name string) ([]netip.Addr, error)

	mu     sync.Mutex
	byName map[string]*nameEntry
	byAddr map[netip.Addr]*nameEntry
	// used has the most recently used *nameEntry at its front.
	used list.List
	// handedOut remembers for which name a real address was handed out. It is only for the log:
	// nothing is allowed because of it.
	handedOut map[netip.Addr]string
	// next is where the search for a free stand-in starts. It only moves forward, so that an
	// address is not soon reused for another name.
	next netip.Addr
}

type nameEntry struct {
	name string
	// standIn is the zero Addr until one is assigned.
	standIn netip.Addr
	place   *list.Element

	addrs   []netip.Addr
	err     error
	expires time.Time
	// pending is closed when the current lookup ends.
	pending chan struct{}
}

func newNames(ctx context.Context, clock bothy.Clock, lookup func(context.Context, string) ([]netip.Addr, error)) *names {
	return &names{
		ctx: ctx, clock: clock, lookup: lookup,
		byName: map[string]*nameEntry{}, byAddr: map[netip.Addr]*nameEntry{}, handedOut: map[netip.Addr]string{},
		next: standIns.Addr(),
	}
}

// entry returns the entry of name, creating it if necessary. The caller holds mu.
func (n *names) entry(name string) *nameEntry {
	if e := n.byName[name]; e != nil {
		n.used.MoveToFront(e.place)
		return e
	}
	if len(n.byName) >= maxNames {
		old := n.used.Remove(n.used.Back()).(*nameEntry)
		delete(n.byName, old.name)
		delete(n.byAddr, old.standIn)
	}
	e := &nameEntry{name: name}
	e.place = n.used.PushFront(e)
	n.byName[name] = e
	return e
}

// standIn returns the address that stands for name.
func (n *names) standIn(name string) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.entry(name)
	for !e.standIn.IsValid() {
		n.next = n.next.Next()
		if !standIns.Contains(n.next) {
			n.next = standIns.Addr()
			continue
		}
		if b := n.next.As4(); n.byAddr[n.next] == nil && b[3] != 0 && b[3] != 255 {
			e.standIn = n.next
			n.byAddr[e.standIn] = e
		}
	}
	return e.standIn
}

// at returns the name that addr stands for, or "".
func (n *names) at(addr netip.Addr) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.byAddr[addr]
	if e == nil {
		return ""
	}
	n.used.MoveToFront(e.place)
	return e.name
}

// record records that addr was handed out for name.
func (n *names) record(addr netip.Addr, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.handedOut) >= maxNames {
		clear(n.handedOut)
	}
	n.handedOut[addr] = name
}

// nameOf returns the name for which addr was last handed out, or "".
func (n *names) nameOf(addr netip.Addr) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.handedOut[addr]
}

// resolve returns the real addresses of name, cached if fresh. Concurrent
// queries for one name are made once.
func (n *names) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	n.mu.Lock()
	e := n.entry(name)
	if e.pending == nil && n.clock.Now().Before(e.expires) {
		defer n.mu.Unlock()
		return e.addrs, e.err
	}
	if e.pending == nil {
		e.pending = make(chan struct{})
		go n.ask(e)
	}
	pending := e.pending
	n.mu.Unlock()
	select {
	case <-pending:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return e.addrs, e.err
}

// ask asks the resolver and fills e.
func (n *names) ask(e *nameEntry) {
	ctx, cancel := context.WithTimeout(n.ctx, lookupTime)
	defer cancel()
	addrs, err := n.lookup(ctx, e.name)
	n.mu.Lock()
	defer n.mu.Unlock()
	e.addrs, e.err = addrs, err
	age := nameAge
	if err != nil {
		age = noNameAge
	}
	e.expires = n.clock.Now().Add(age)
	close(e.pending)
	e.pending = nil
}

// lookup asks the gateway's resolver for the addresses of a name.
func (g *Gateway) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, err := g.resolver.LookupNetIP(ctx, "ip", name+".")
	if err != nil {
		var d *net.DNSError
		if errors.As(err, &d) && d.IsNotFound {
			return nil, errNoName
		}
		g.log.Warn("gateway: a name could not be looked up", "name", name, "err", err)
		return nil, err
	}
	addrs = slices.Clone(addrs[:min(len(addrs), maxAddrs)])
	for i, a := range addrs {
		addrs[i] = a.Unmap().WithZone("")
	}
	return addrs, nil
}

// reachable returns the addresses of name that are not forbidden, IPv4 first, or an error if
// there are none.
func (g *Gateway) reachable(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, err := g.names.resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	var good []netip.Addr
	var reasons []string
	for _, want4 := range []bool{true, false} {
		for _, a := range addrs {
			if a.Is4() != want4 {
				continue
			}
			if reason := g.guard.check(a); reason == "" {
				good = append(good, a)
			} else if !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
		}
	}
	if len(good) == 0 && len(reasons) > 0 {
		if g.forbiddenLines.Allow() {
			g.log.Info("gateway: a name has only forbidden addresses", "name", name, "addresses", addrs)
		}
		return nil, &forbiddenError{name, reasons}
	}
	if len(good) == 0 {
		return nil, errNoName
	}
	return good, nil
}

// forbiddenError says that a name has only forbidden addresses. Only the operator's log says
// which ones: in the sandbox and its log they would be a map of the operator's network.
type forbiddenError struct {
	name  string
	kinds []string
}

// Error returns what the sandbox may see.
func (e *forbiddenError) Error() string { return e.name + " has no address that may be reached" }

// reason returns what the sandbox's log shows.
func (e *forbiddenError) reason() string {
	return e.Error() + ": what it has is " + strings.Join(e.kinds, "; ")
}
