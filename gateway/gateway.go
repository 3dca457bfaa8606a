// Package gateway is the host's end of a sandbox's only network device: a
// user-space TCP/IP stack that sees every packet the sandbox sends, and lets
// through what the sandbox's policy allows.
//
// There is one Gateway per running sandbox. It starts closed. The policy is set before the
// sandbox is handed out; the host reaches the guest through Dial in every mode. Only package
// server creates gateways; their interface uses the types of package bothy.
package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// DefaultMaxConns bounds the connections that a sandbox holds open.
const DefaultMaxConns = 4096

// A Dialer opens the gateway's own connections to the outside. Network is "tcp" or "udp",
// address an IP address and a port: names are resolved before, and exactly the address that was
// checked is dialled. *net.Dialer implements it.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// A Resolver looks up names for the gateway. Host ends in a dot. A name that
// does not exist is a *net.DNSError with IsNotFound. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options say how a gateway works. The zero value is a working default.
type Options struct {
	Log      *slog.Logger
	Dialer   Dialer
	Resolver Resolver
	// Presets replaces the presets that come with Bothy.
	Presets Presets
	// Allow lifts the ban on prefixes that are otherwise forbidden, such as a private network
	// with a service for sandboxes. The host's own addresses must be listed individually. A
	// lifted address is still subject to the policy.
	Allow []netip.Prefix
	// Forbid adds prefixes to the forbidden ones. It overrides Allow.
	Forbid []netip.Prefix
	// HostAddrs lists the host's own addresses, which are forbidden. The
	// default asks the host's interfaces.
	HostAddrs func() ([]netip.Addr, error)
	// OnDecision is called for every new line of the log, in order, from one goroutine. It may
	// block: then lines are folded into counts.
	OnDecision func(bothy.NetworkDecision)
	// Journal keeps the log and the counters beyond this gateway. Optional.
	Journal *Journal
	// GuestMAC is the only link address that frames may come from. The default is
	// bothy.GuestMAC.
	GuestMAC net.HardwareAddr
	// MaxConns bounds the open connections. 0 means DefaultMaxConns.
	MaxConns int
	// Budget bounds the connections of all gateways that share it. The default is
	// one for the process.
	Budget *Budget
	// RootCAs verifies the hosts that secrets are sent to. nil means the
	// host's own trust store.
	RootCAs *x509.CertPool
	// SecretSeed makes the placeholders and the certificate authority of a sandbox the same
	// again after a pause. By default both are random.
	SecretSeed []byte
	// Await waits until this host may speak for its sandboxes, or returns an error when ctx
	// ends. It is called before each connection, look-up and write. Optional.
	Await func(ctx context.Context) error
	Clock bothy.Clock
}

// Gateway is the other end of one sandbox's network device. Its methods may be called
// from many goroutines.
type Gateway struct {
	log      *slog.Logger
	dialer   Dialer
	resolver Resolver
	presets  Presets
	clock    bothy.Clock
	guard    guard
	maxConns int
	budget   *Budget
	rootCAs  *x509.CertPool
	// patience is how long a connection may take to say which host it is for.
	patience time.Duration

	dev     bothy.NetDevice
	link    *link
	stack   *stack.Stack
	names   *names
	lines   *decisionLog
	queries chan struct{}
	// forbiddenLines limits the lines that a sandbox can cause in the host's log.
	forbiddenLines *rate.Limiter

	// seed is used for secrets without a seed of their own.
	seed    []byte
	secrets atomic.Pointer[secrets]

	egress, ingress atomic.Int64

	// intercepted counts connections, requests those in flight on them, and heads bytes.
	intercepted, requests, heads quota

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	// persisted waits for OnDecision, which gets the last lines after work.
	persisted sync.WaitGroup

	// mu guards the fields below. A flow is checked and registered under one lock, so that a new
	// policy either applies to it from the start or finds it registered.
	mu     sync.Mutex
	policy *policy
	flows  map[*flow]struct{}
	udp    int
	// spent is how much of the budget this sandbox holds, and project its owner, "" if it has
	// none.
	spent   int
	project string
	closed  bool
}

// New attaches a gateway to a network device, which it then owns. Only Dial works until
// SetPolicy.
func New(dev bothy.NetDevice, o Options) (*Gateway, error) {
	if dev.MTU() < 576 || dev.MTU() > 65535 {
		return nil, bothy.Errorf(bothy.CodeInvalid, "a network device with an MTU of %d cannot carry IPv4", dev.MTU())
	}
	g := newGateway(dev, o)
	var from uint64
	if o.Journal != nil {
		from = g.remember(o.Journal)
	}
	s, err := newStack(g)
	if err != nil {
		return nil, err
	}
	g.stack = s
	g.work.Add(1)
	go g.read()
	if err := g.serveDNS(); err != nil {
		g.Close()
		return nil, err
	}
	if o.OnDecision != nil {
		g.persisted.Go(func() { g.lines.followFrom(0, o.OnDecision) })
	}
	if o.Journal != nil {
		g.persisted.Go(func() { g.keep(o.Journal, from) })
	}
	return g, nil
}

func newGateway(dev bothy.NetDevice, o Options) *Gateway {
	g := &Gateway{
		log: o.Log, dialer: o.Dialer, resolver: o.Resolver, presets: o.Presets, clock: o.Clock,
		guard: guard{allow: o.Allow, forbid: o.Forbid, host: theHost}, maxConns: o.MaxConns, rootCAs: o.RootCAs, seed: newSeed(o.SecretSeed),
		patience: firstBytesTime, dev: dev, policy: shut, flows: map[*flow]struct{}{}, queries: make(chan struct{}, maxQueries),
		forbiddenLines: rate.NewLimiter(rate.Every(time.Minute), 10),
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.dialer == nil {
		g.dialer = &net.Dialer{}
	}
	if g.resolver == nil {
		g.resolver = hostResolver{}
	}
	if o.Await != nil {
		g.dialer, g.resolver = gatedDialer{g.dialer, o.Await}, gatedResolver{g.resolver, o.Await}
	}
	if g.presets == nil {
		g.presets = DefaultPresets()
	}
	if g.clock == nil {
		g.clock = systemClock{}
	}
	if g.budget = o.Budget; g.budget == nil {
		g.budget = serverBudget()
	}
	if g.maxConns == 0 {
		g.maxConns = DefaultMaxConns
	}
	if o.HostAddrs != nil {
		g.guard.host = &hostAddrs{list: o.HostAddrs, now: g.clock.Now}
	}
	g.intercepted.most, g.requests.most, g.heads.most = maxIntercepted, maxRequests, headBudget
	g.secrets.Store(&secrets{})
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.lines = newDecisionLog(g.clock)
	g.names = newNames(g.ctx, g.clock, g.lookup)
	guest := mac(bothy.GuestMAC)
	if len(o.GuestMAC) == len(guest) {
		guest = mac(o.GuestMAC)
	}
	g.link = newLink(dev, guest, g.refusedPacket)
	g.link.beforeSYN = g.awaitClosed
	return g
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

func (g *Gateway) read() {
	defer g.work.Done()
	if err := g.link.run(); err != nil {
		g.log.Error("gateway: the network device failed", "err", err)
	}
}

// SetPolicy replaces the policy. It applies from the next packet, and open connections that it
// does not allow are reset. If n is not valid, the policy does not change.
func (g *Gateway) SetPolicy(n bothy.Network) error {
	p, err := compile(n, g.presets)
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.policy = p
	var out []*flow
	for f := range g.flows {
		if t := f.target(); !g.evaluate(p, t).allowed || p.mayNowDeny(t) {
			out = append(out, f)
		}
	}
	g.mu.Unlock()
	for _, f := range out {
		f.revoke("the policy changed")
	}
	return nil
}

func (g *Gateway) currentPolicy() *policy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.policy
}

// Counters returns the payload that passed between the sandbox and the outside, including that
// of earlier gateways from the journal, but not what the host itself sends over Dial.
func (g *Gateway) Counters() bothy.NetworkCounters {
	return bothy.NetworkCounters{EgressBytes: g.egress.Load(), IngressBytes: g.ingress.Load()}
}

// Log returns the remembered decisions since a time, oldest first.
func (g *Gateway) Log(since time.Time) []bothy.NetworkDecision {
	lines, _ := g.lines.since(since)
	return lines
}

// Follow calls fn for the remembered decisions since a time and then for each new one, until ctx
// ends, fn fails, or the gateway closes. No decision is missed or repeated between the two. If
// fn is too slow, a line says how many were missed.
func (g *Gateway) Follow(ctx context.Context, since time.Time, fn func(bothy.NetworkDecision) error) error {
	return g.lines.follow(ctx, since, fn)
}

// Close resets all connections, closes the network device, and returns when nothing of
// the gateway runs any more.
func (g *Gateway) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	g.policy = shut
	flows := make([]*flow, 0, len(g.flows))
	for f := range g.flows {
		flows = append(flows, f)
	}
	g.mu.Unlock()

	g.cancel()
	for _, f := range flows {
		f.revoke("the gateway closed")
	}
	g.stack.Close()
	err := g.dev.Close()
	g.work.Wait()
	g.stack.Wait()
	g.lines.close()
	g.persisted.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
