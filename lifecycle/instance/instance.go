package instance

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
	"github.com/bothy-dev/bothy/store"
)

// Instance is a running machine with its gateway, its guest and its state.
type Instance struct {
	ID      string
	Project string
	Machine bothy.Machine
	Gateway bothy.Gateway
	Guest   bothy.Guest
	Limits  bothy.Limits
	Digest  string // of the template's image
	Engine  string
	// limited are the limits that were last set on the machine.
	limited bothy.Limits

	// identity is the identity that the guest last adopted; nil before.
	identity *bothy.Identity

	// Root is the sandbox whose budget this one counts against, if any, and PauseAfter the time
	// of the next attempt to pause it for that. Guarded by Service.mu.
	Root       string
	PauseAfter time.Time

	// Health is what is wrong with the machine, as far as commands have met it.
	Health   atomic.Pointer[bothy.Health]
	Activity Activity
	History  History
	// Checkpoints schedules its checkpoints.
	Checkpoints Checkpoints
	still       autofreeze
	conns       guestConns
	// KeptConns are reusable connections to servers inside. Idle ones do not count as use.
	KeptConns *keepalive.Conns
	// Enlisting is held while the register is updated.
	Enlisting sync.Mutex
	// frozenForSnapshot counts the snapshots in progress, which freeze the machine.
	frozenForSnapshot atomic.Int32
	// Fresh is set if the machine was booted for this sandbox instead of restored.
	Fresh bool
	// Cancel stops the watchers.
	Cancel context.CancelFunc

	mu        sync.Mutex
	stopTimer func() bool
	stopIdle  func() bool
	// ending is set by the verb that ends the machine, so that the watcher ignores its exit.
	ending bool
	// why is the reason given by a caller that could not wait for the sandbox's lock.
	why *bothy.Exit
	// Gone is closed once the end of the machine is stored.
	Gone chan struct{}
}

// Detach disconnects from the machine without ending it.
func (l *Instance) Detach() {
	l.mu.Lock()
	if l.stopTimer != nil {
		l.stopTimer()
	}
	if l.stopIdle != nil {
		l.stopIdle()
	}
	l.mu.Unlock()
	l.Checkpoints.Stop()
	l.stopAutofreeze()
	l.Cancel()
	l.KeptConns.Close()
	l.Guest.CloseIdle()
	l.Gateway.Close()
}

// SetExpiry replaces the timer for the sandbox's timeout by the one that arm returns, if any.
func (l *Instance) SetExpiry(arm func() (stop func() bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopTimer != nil {
		l.stopTimer()
	}
	l.stopTimer = arm()
}

// SetIdle is SetExpiry for the idle timer.
func (l *Instance) SetIdle(arm func() (stop func() bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopIdle != nil {
		l.stopIdle()
	}
	l.stopIdle = arm()
}

// SetIdleAgain is SetIdle, unless the timer was cleared.
func (l *Instance) SetIdleAgain(arm func() (stop func() bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopIdle != nil {
		l.stopIdle = arm()
	}
}

// MarkFrozen records that the machine is frozen for a snapshot until done is called.
func (l *Instance) MarkFrozen() (done func()) {
	l.frozenForSnapshot.Add(1)
	return func() { l.frozenForSnapshot.Add(-1) }
}

// ExpectEnd records that the machine is being ended on purpose.
func (l *Instance) ExpectEnd() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
}

// EndExpected reports whether ExpectEnd was called.
func (l *Instance) EndExpected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ending
}

// EndFor sets the reason of an end by a caller without the sandbox's lock.
func (l *Instance) EndFor(x bothy.Exit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = &x
}

// Exit returns why the machine has ended.
func (l *Instance) Exit() bothy.Exit {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		return *l.why
	}
	return l.Machine.Exit()
}

// Ended announces that the end of the machine is stored.
func (l *Instance) Ended() { close(l.Gone) }

// Hung reports whether the guest failed to respond at the last checks.
func (l *Instance) Hung() bool { return l.conns.isHung() }

// Attach opens the network device of a machine, and creates its gateway, which is closed, and
// its guest.
func (s *Machines) Attach(ctx context.Context, sb *store.Sandbox, m bothy.Machine, key string) (*Instance, error) {
	var undo cleanup.Stack
	defer undo.Run()
	dev, err := m.NetDevice(ctx)
	if err != nil {
		return nil, err
	}
	undo.Add(func() { dev.Close() })
	gw, err := s.o.NewGateway(sb.ID, dev)
	if err != nil {
		return nil, err
	}
	undo.Add(func() { gw.Close() })
	if err := s.GiveSecrets(gw, sb); err != nil {
		return nil, err
	}
	undo.Release()
	l := &Instance{
		ID: sb.ID, Project: sb.ProjectID, Machine: m, Gateway: gw, Limits: LimitsOf(sb), Digest: sb.TemplateDigest, Engine: sb.Engine,
		Cancel: func() {}, Gone: make(chan struct{}),
	}
	l.Guest = s.o.NewGuest(func(ctx context.Context) (net.Conn, error) { return l.conns.dial(ctx, gw) }, key)
	l.KeptConns = s.kept.Machine(func(ctx context.Context, port uint16) (net.Conn, error) { return s.DialPort(ctx, l, port) })
	return l, nil
}

func LimitsOf(sb *store.Sandbox) bothy.Limits {
	return bothy.Limits{
		CPU: sb.CPU, MemoryMB: sb.MemoryMB, DiskMB: sb.DiskMB,
		Processes: bothy.ProcessesFor(sb.MemoryMB),
	}
}

// caBundlePath is where the guest adds the certificates that a sandbox must trust. The
// variables point programs with their own bundles to it.
const caBundlePath = "/etc/ssl/certs/ca-certificates.crt"

var bundleVariables = []string{
	"SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",
}

// OpenNetwork sets the project and the policy of a gateway.
func OpenNetwork(gw bothy.Gateway, sb *store.Sandbox) error {
	if o, ok := gw.(bothy.OwnedGateway); ok {
		o.SetOwner(sb.ProjectID)
	}
	return gw.SetPolicy(sb.Network)
}

// Identify gives the machine its identity. The policy is set first, so that existing
// connections comply with it.
func (s *Machines) Identify(ctx context.Context, l *Instance, sb *store.Sandbox, t *store.Template, took *Steps) error {
	return s.IdentifyAs(ctx, l, sb, t, sb.ID, took)
}

// IdentifyAs is Identify with an id, which is empty while the machine has no owner. The guest
// is not called if its identity is unchanged.
func (s *Machines) IdentifyAs(ctx context.Context, l *Instance, sb *store.Sandbox, t *store.Template, id string, took *Steps) error {
	if err := OpenNetwork(l.Gateway, sb); err != nil {
		return err
	}
	if l.identity == nil {
		if a, ok := l.Machine.(bothy.Announcer); ok {
			a.Announced(ctx)
		}
		if err := l.Guest.WaitReady(ctx); err != nil {
			return err
		}
		took.Lap("guest")
	}
	who := s.identity(l, sb, t, id)
	if l.identity == nil || !sameIdentity(*l.identity, who) {
		if err := l.Guest.Adopt(ctx, who); err != nil {
			return err
		}
		l.identity = &who
	}
	took.Lap("adopt")
	sb.GuestKey = l.identity.Key
	return nil
}

// IdentifyAgain changes the identity of a running sandbox. Its key stays, so that a server that
// dies in between can still connect.
func (s *Machines) IdentifyAgain(ctx context.Context, l *Instance, sb *store.Sandbox, t *store.Template) error {
	who := s.identity(l, sb, t, sb.ID)
	who.Key = sb.GuestKey
	if l.identity != nil && sameIdentity(*l.identity, who) {
		return nil
	}
	if err := l.Guest.Adopt(ctx, who); err != nil {
		return err
	}
	l.identity = &who
	return nil
}

// identity is the identity of a sandbox's guest.
func (s *Machines) identity(l *Instance, sb *store.Sandbox, t *store.Template, id string) bothy.Identity {
	env := map[string]string{}
	cas := s.o.CABundle
	if keeper, ok := l.Gateway.(bothy.SecretKeeper); ok {
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
		MemoryLimitBytes: LimitsOf(sb).MemoryBytes(), CABundle: cas,
		ResolvConf: "nameserver " + bothy.GatewayAddr.String() + "\n",
	}
}

// sameIdentity ignores the fields that are new each time.
func sameIdentity(a, b bothy.Identity) bool {
	a.Key, a.Now, a.Entropy = b.Key, b.Now, b.Entropy
	return reflect.DeepEqual(a, b)
}

// Limit sets the machine's limits, unless they are set already.
func (l *Instance) Limit(ctx context.Context) error {
	if l.limited == l.Limits {
		return nil
	}
	if err := l.Machine.SetLimits(ctx, l.Limits); err != nil {
		return err
	}
	l.limited = l.Limits
	return nil
}

// Reading returns the usage counters of a running sandbox.
func (l *Instance) Reading(ctx context.Context) (bothy.MeterReading, error) {
	r := bothy.MeterReading{NetworkCounters: l.Gateway.Counters()}
	if m, ok := l.Machine.(bothy.CPUMeter); ok {
		var err error
		r.CPUSeconds, err = m.CPUSeconds()
		return r, err
	}
	st, err := l.Machine.Stats(ctx)
	r.CPUSeconds = st.CPUSeconds
	return r, err
}

// StartError prefers the machine's own exit reason over an error from its guest.
func StartError(m bothy.Machine, err error) error {
	select {
	case <-m.Done():
		x := m.Exit()
		return bothy.Errorf(bothy.CodeEngine, "the sandbox ended while it was starting (%s): %s", x.Reason, x.Detail).Because(err)
	default:
		return err
	}
}

func (s *Machines) Destroy(m bothy.Machine) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := m.Destroy(ctx); err != nil {
		s.o.Log.Error("cannot destroy a machine", "sandbox", m.ID(), "error", err)
	}
}
