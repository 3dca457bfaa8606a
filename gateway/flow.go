package gateway

import (
	"context"
	"net/netip"
	"sync"

	"github.com/bothy-dev/bothy"
)

// target is where the guest wants to go.
type target struct {
	// dst is the destination in the guest's packet.
	dst netip.AddrPort
	// standIn is set if dst is an address that stands for a name. The name may be unknown here,
	// because a resumed sandbox remembers addresses from an earlier gateway. Then the connection
	// itself must state the name.
	standIn bool
	name    string
	// label is the name for which a real address was handed out, for the log.
	label string
	// unchecked is set for a connection to a name in mode open, where it is not checked that the
	// connection really is for that name.
	unchecked bool
	// resolver is set for connections to the gateway's own DNS server.
	resolver bool
}

// target returns what dst currently stands for.
func (g *Gateway) target(dst netip.AddrPort) target {
	t := target{dst: dst, standIn: standIns.Contains(dst.Addr())}
	if t.standIn {
		t.name = g.names.at(dst.Addr())
		t.label = t.name
	} else {
		t.label = g.names.nameOf(dst.Addr())
	}
	return t
}

// evaluate decides about one target under p.
func (g *Gateway) evaluate(p *policy, t target) verdict {
	if p.mode != bothy.NetworkOpen && p.mode != bothy.NetworkRestricted {
		return refuse("the network is off")
	}
	if t.resolver {
		return allow("resolver")
	}
	if !t.standIn {
		if reason := g.guard.check(t.dst.Addr()); reason != "" {
			return refuse("%s is %s", t.dst.Addr(), reason)
		}
		return p.addrAt(t.dst.Addr(), t.dst.Port())
	}
	if t.unchecked && p.mode == bothy.NetworkRestricted {
		return refuse("the connection is older than the list")
	}
	if t.name != "" {
		return p.nameAt(t.name, t.dst.Port())
	}
	if !webPorts[t.dst.Port()] {
		return refuse("the address %s stands for no name; look the name up again", t.dst.Addr())
	}
	return allow("")
}

// refused is the log line about a target that was not allowed.
func (t target) refused(protocol string, v verdict) bothy.NetworkDecision {
	return bothy.NetworkDecision{
		Protocol: protocol, Name: t.label, Address: t.dst.Addr().String(), Port: t.dst.Port(), Reason: v.reason,
	}
}

// flow is one connection of the guest to the outside, from its first packet to its last.
type flow struct {
	protocol string
	ctx      context.Context
	cancel   context.CancelFunc
	out, in  tally
	// rank is the number of connections that were open when this one was opened.
	rank int
	// giveBack returns its part of the server's budget.
	giveBack func()

	mu      sync.Mutex
	to      target
	revoked string
	aborts  []func()
}

// open judges a target and, if it is allowed, registers a flow for it.
func (g *Gateway) open(protocol string, t target) (*flow, verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.evaluate(g.policy, t)
	if !v.allowed {
		return nil, v
	}
	if len(g.flows) >= g.maxConns || g.closed {
		return nil, refuse("the sandbox has too many open connections (%d)", len(g.flows))
	}
	giveBack := func() {}
	if !t.resolver {
		if giveBack = g.spend(); giveBack == nil {
			return nil, refuse("the server has too many open connections for another one of this sandbox (%d)", g.spent)
		}
	}
	_, excepted := g.policy.exception(t.name)
	t.unchecked = g.policy.mode == bothy.NetworkOpen && t.name != "" && !excepted && !g.secretHost(t.name)
	f := &flow{protocol: protocol, to: t, rank: len(g.flows), giveBack: giveBack}
	f.ctx, f.cancel = context.WithCancel(g.ctx)
	f.out.total, f.in.total = &g.egress, &g.ingress
	g.flows[f] = struct{}{}
	openFlows.Add(1)
	g.work.Add(1)
	return f, v
}

// rename ties an open flow to a name that was learned later, and judges it
// again.
func (g *Gateway) rename(f *flow, name string) verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	f.mu.Lock()
	f.to.name, f.to.label = name, name
	t := f.to
	f.mu.Unlock()
	return g.evaluate(g.policy, t)
}

// end forgets a flow.
func (g *Gateway) end(f *flow) {
	f.cancel()
	g.mu.Lock()
	delete(g.flows, f)
	g.mu.Unlock()
	f.giveBack()
	openFlows.Add(-1)
	g.work.Done()
}

func (f *flow) target() target {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.to
}

// onRevoke makes the flow call abort when it loses its permission, or immediately if it already
// has.
func (f *flow) onRevoke(abort func()) {
	f.mu.Lock()
	gone := f.revoked != ""
	if !gone {
		f.aborts = append(f.aborts, abort)
	}
	f.mu.Unlock()
	if gone {
		abort()
	}
}

// revoke aborts the flow.
func (f *flow) revoke(reason string) {
	f.mu.Lock()
	aborts := f.aborts
	f.aborts = nil
	if f.revoked == "" {
		f.revoked = reason
	}
	f.mu.Unlock()
	f.cancel()
	for _, abort := range aborts {
		abort()
	}
}

func (f *flow) whyRevoked() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revoked
}

// decision is a log line about the flow.
func (f *flow) decision(protocol string, v verdict) bothy.NetworkDecision {
	t := f.target()
	return bothy.NetworkDecision{
		Protocol: protocol, Name: t.label, Address: t.dst.Addr().String(), Port: t.dst.Port(),
		Allowed: v.allowed, Rule: v.rule, Reason: v.reason,
	}
}

// closing is the last log line about the flow.
func (f *flow) closing(protocol, rule string, err error) bothy.NetworkDecision {
	d := f.decision(protocol, allow(rule))
	d.Closed = true
	d.BytesOut, d.BytesIn = f.out.flow.Load(), f.in.flow.Load()
	if reason := f.whyRevoked(); reason != "" {
		d.Reason = reason
	} else if err != nil {
		d.Reason = err.Error()
	}
	return d
}
