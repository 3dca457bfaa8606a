package lifecycle

import (
	"cmp"
	"context"
	"maps"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/cleanup"
	"github.com/bothy-dev/bothy/internal/keepalive"
)

// live is a running machine with what belongs to it.
type live struct {
	id      string
	project string
	machine bothy.Machine
	gateway bothy.Gateway
	guest   bothy.Guest
	limits  bothy.Limits
	digest  string // of the template's image
	engine  string
	// limited are the limits that the machine was told, if any.
	limited bothy.Limits

	// told is what the guest was last told to be, once it has been adopted.
	told *bothy.Identity

	// root is the sandbox whose budget this one counts against, if any, and
	// pauseAfter when to try again to pause it for that. Under Service.mu.
	root       string
	pauseAfter time.Time

	use   usage
	still stillness
	conns guestConns
	// kept are connections to servers inside. One that is idle is no use of the
	// sandbox.
	kept *keepalive.Conns
	// enlisting is held while the register is told of it.
	enlisting sync.Mutex
	// standing counts the snapshots that are being taken, for which it stands still.
	standing atomic.Int32
	// fresh is set when the machine was made for this sandbox, and not woken with
	// what another has run.
	fresh bool
	// cancel ends the watchers.
	cancel context.CancelFunc

	mu        sync.Mutex
	stopTimer func() bool
	stopIdle  func() bool
	// ending is set by the verb that ends the machine, so that its exit is no
	// surprise to the watcher.
	ending bool
	// why is the reason of an end that could not wait for the sandbox's lock.
	why *bothy.Exit
	// gone is closed when the end of the machine has been stored.
	gone chan struct{}
}

// detach lets go of the machine without ending it.
func (l *live) detach() {
	l.mu.Lock()
	if l.stopTimer != nil {
		l.stopTimer()
	}
	if l.stopIdle != nil {
		l.stopIdle()
	}
	l.mu.Unlock()
	l.unwatchStill()
	l.cancel()
	l.kept.Close()
	l.guest.CloseIdle()
	l.gateway.Close()
}

// setExpiry replaces the timer for the end of the sandbox's time by the one that arm
// starts, if it does.
func (l *live) setExpiry(arm func() (stop func() bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopTimer != nil {
		l.stopTimer()
	}
	l.stopTimer = arm()
}

// setIdle is setExpiry for the timer that finds the sandbox idle.
func (l *live) setIdle(arm func() (stop func() bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopIdle != nil {
		l.stopIdle()
	}
	l.stopIdle = arm()
}

// setIdleAgain is setIdle, unless there is no timer any more.
func (l *live) setIdleAgain(arm func() (stop func() bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopIdle != nil {
		l.stopIdle = arm()
	}
}

// paused says that the machine is stopped for a snapshot until done is called.
func (l *live) paused() (done func()) {
	l.standing.Add(1)
	return func() { l.standing.Add(-1) }
}

// expectEnd says that the machine is being ended, so that its exit is no surprise.
func (l *live) expectEnd() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
}

// endExpected reports whether it is.
func (l *live) endExpected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ending
}

// endFor says why the machine is being ended by one who has no lock of the sandbox.
func (l *live) endFor(x bothy.Exit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = &x
}

// exit says why the machine has ended.
func (l *live) exit() bothy.Exit {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		return *l.why
	}
	return l.machine.Exit()
}

// ended says that the end of the machine has been stored.
func (l *live) ended() { close(l.gone) }

// hung reports whether the guest was last seen not to answer.
func (l *live) hung() bool { return l.conns.isHung() }

// attach opens the cable of a machine and makes its gateway and guest. The
// gateway is shut.
func (s *machines) attach(ctx context.Context, sb *bothy.Sandbox, m bothy.Machine, key string) (*live, error) {
	var undo cleanup.Stack
	defer undo.Run()
	cable, err := m.Cable(ctx)
	if err != nil {
		return nil, err
	}
	undo.Add(func() { cable.Close() })
	gw, err := s.o.NewGateway(sb.ID, cable)
	if err != nil {
		return nil, err
	}
	undo.Add(func() { gw.Close() })
	if err := s.giveSecrets(gw, sb); err != nil {
		return nil, err
	}
	undo.Release()
	l := &live{
		id: sb.ID, project: sb.ProjectID, machine: m, gateway: gw, limits: limitsOf(sb), digest: sb.TemplateDigest, engine: sb.Engine,
		cancel: func() {}, gone: make(chan struct{}),
	}
	l.guest = s.o.NewGuest(func(ctx context.Context) (net.Conn, error) { return l.conns.dial(ctx, gw) }, key)
	l.kept = s.kept.Machine(func(ctx context.Context, port uint16) (net.Conn, error) { return s.dialPort(ctx, l, port) })
	return l, nil
}

func limitsOf(sb *bothy.Sandbox) bothy.Limits {
	return bothy.Limits{
		CPU: sb.CPU, MemoryMB: sb.MemoryMB, DiskMB: sb.DiskMB,
		Processes: bothy.ProcessesFor(sb.MemoryMB),
	}
}

// caBundlePath is where the guest adds the certificates that a sandbox is to
// trust. Programs that bring a bundle of their own are told of it by variables.
const caBundlePath = "/etc/ssl/certs/ca-certificates.crt"

var bundleVariables = []string{
	"SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",
}

// openNetwork tells a gateway whose sandbox it serves and under which policy.
func openNetwork(gw bothy.Gateway, sb *bothy.Sandbox) error {
	if o, ok := gw.(bothy.OwnedGateway); ok {
		o.SetOwner(sb.ProjectID)
	}
	return gw.SetPolicy(sb.Network)
}

// adopt gives the machine its identity. What came up before is shut off until
// the policy, set here first, says otherwise.
func (s *machines) adopt(ctx context.Context, l *live, sb *bothy.Sandbox, t *bothy.Template, took *laps) error {
	return s.adoptAs(ctx, l, sb, t, sb.ID, took)
}

// adoptAs is adopt with an id, which is empty as long as nobody owns the machine. A
// guest that is what it is to be is not asked.
func (s *machines) adoptAs(ctx context.Context, l *live, sb *bothy.Sandbox, t *bothy.Template, id string, took *laps) error {
	if err := openNetwork(l.gateway, sb); err != nil {
		return err
	}
	if l.told == nil {
		if a, ok := l.machine.(bothy.Announcer); ok {
			a.Announced(ctx)
		}
		if err := l.guest.WaitReady(ctx); err != nil {
			return err
		}
		took.lap("guest")
	}
	who := s.identity(l, sb, t, id)
	if l.told == nil || !sameIdentity(*l.told, who) {
		if err := l.guest.Adopt(ctx, who); err != nil {
			return err
		}
		l.told = &who
	}
	took.lap("adopt")
	sb.GuestKey = l.told.Key
	return nil
}

// identity is what the guest of a sandbox is told to be.
func (s *machines) identity(l *live, sb *bothy.Sandbox, t *bothy.Template, id string) bothy.Identity {
	env := map[string]string{}
	cas := s.o.CABundle
	if keeper, ok := l.gateway.(bothy.SecretKeeper); ok {
		for name, placeholder := range keeper.Placeholders() {
			env[name] = placeholder
		}
		cas += string(keeper.CAPEM())
	}
	if cas != "" {
		for _, name := range bundleVariables {
			env[name] = caBundlePath
		}
	}
	maps.Copy(env, t.Env)
	maps.Copy(env, sb.Env)
	return bothy.Identity{
		Key: newKey(), SandboxID: id, Hostname: hostname(sb), MachineID: machineID(sb.ID),
		Env: env, Now: s.o.Clock.Now(), Entropy: newEntropy(),
		DefaultUser: cmp.Or(t.User, bothy.DefaultUser), DefaultCwd: t.Cwd,
		MemoryLimitBytes: limitsOf(sb).MemoryBytes(), CABundle: cas,
		ResolvConf: "nameserver " + bothy.GatewayAddr.String() + "\n",
	}
}

// sameIdentity compares all but what is new each time.
func sameIdentity(a, b bothy.Identity) bool {
	a.Key, a.Now, a.Entropy = b.Key, b.Now, b.Entropy
	return reflect.DeepEqual(a, b)
}

// limit tells the machine its limits, unless it knows them.
func (l *live) limit(ctx context.Context) error {
	if l.limited == l.limits {
		return nil
	}
	if err := l.machine.SetLimits(ctx, l.limits); err != nil {
		return err
	}
	l.limited = l.limits
	return nil
}

// reading tells what the counters of a live sandbox stand at.
func (l *live) reading(ctx context.Context) (bothy.MeterReading, error) {
	r := bothy.MeterReading{NetworkCounters: l.gateway.Counters()}
	if m, ok := l.machine.(bothy.CPUMeter); ok {
		var err error
		r.CPUSeconds, err = m.CPUSeconds()
		return r, err
	}
	st, err := l.machine.Stats(ctx)
	r.CPUSeconds = st.CPUSeconds
	return r, err
}

// startError prefers the machine's own reason over a guest that did not answer.
func startError(m bothy.Machine, err error) error {
	select {
	case <-m.Done():
		x := m.Exit()
		return bothy.Errorf(bothy.CodeEngine, "the sandbox ended while it was starting (%s): %s", x.Reason, x.Detail).Because(err)
	default:
		return err
	}
}

func (s *machines) destroy(m bothy.Machine) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := m.Destroy(ctx); err != nil {
		s.o.Log.Error("cannot destroy a machine", "sandbox", m.ID(), "error", err)
	}
}
