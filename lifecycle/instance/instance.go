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

// Instance is a running machine with what belongs to it.
type Instance struct {
	ID      string
	Project string
	Machine bothy.Machine
	Gateway bothy.Gateway
	Guest   bothy.Guest
	Limits  bothy.Limits
	Digest  string // of the template's image
	Engine  string
	// limited are the limits that the machine was told, if any.
	limited bothy.Limits

	// told is what the guest was last told to be, once it has been adopted.
	told *bothy.Identity

	// Root is the sandbox whose budget this one counts against, if any, and
	// pauseAfter when to try again to pause it for that. Under Service.mu.
	Root       string
	PauseAfter time.Time

	Activity Activity
	History  History
	// Checkpoints are those that are taken of it.
	Checkpoints Checkpoints
	still       autofreeze
	conns       guestConns
	// KeptConns are connections to servers inside. One that is idle is no use of the
	// sandbox.
	KeptConns *keepalive.Conns
	// Enlisting is held while the register is told of it.
	Enlisting sync.Mutex
	// standing counts the snapshots that are being taken, for which it stands still.
	standing atomic.Int32
	// Fresh is set when the machine was made for this sandbox, and not woken with
	// what another has run.
	Fresh bool
	// Cancel ends the watchers.
	Cancel context.CancelFunc

	mu        sync.Mutex
	stopTimer func() bool
	stopIdle  func() bool
	// ending is set by the verb that ends the machine, so that its exit is no
	// surprise to the watcher.
	ending bool
	// why is the reason of an end that could not wait for the sandbox's lock.
	why *bothy.Exit
	// Gone is closed when the end of the machine has been stored.
	Gone chan struct{}
}

// Detach lets go of the machine without ending it.
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

// SetExpiry replaces the timer for the end of the sandbox's time by the one that arm
// starts, if it does.
func (l *Instance) SetExpiry(arm func() (stop func() bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopTimer != nil {
		l.stopTimer()
	}
	l.stopTimer = arm()
}

// SetIdle is setExpiry for the timer that finds the sandbox idle.
func (l *Instance) SetIdle(arm func() (stop func() bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopIdle != nil {
		l.stopIdle()
	}
	l.stopIdle = arm()
}

// SetIdleAgain is setIdle, unless there is no timer any more.
func (l *Instance) SetIdleAgain(arm func() (stop func() bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopIdle != nil {
		l.stopIdle = arm()
	}
}

// StandStill says that the machine is stopped for a snapshot until done is called.
func (l *Instance) StandStill() (done func()) {
	l.standing.Add(1)
	return func() { l.standing.Add(-1) }
}

// ExpectEnd says that the machine is being ended, so that its exit is no surprise.
func (l *Instance) ExpectEnd() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
}

// EndExpected reports whether it is.
func (l *Instance) EndExpected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ending
}

// EndFor says why the machine is being ended by one who has no lock of the sandbox.
func (l *Instance) EndFor(x bothy.Exit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = &x
}

// Exit says why the machine has ended.
func (l *Instance) Exit() bothy.Exit {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		return *l.why
	}
	return l.Machine.Exit()
}

// Ended says that the end of the machine has been stored.
func (l *Instance) Ended() { close(l.Gone) }

// Hung reports whether the guest was last seen not to answer.
func (l *Instance) Hung() bool { return l.conns.isHung() }

// Attach opens the network device of a machine and makes its gateway and guest. The
// gateway is shut.
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

// caBundlePath is where the guest adds the certificates that a sandbox is to
// trust. Programs that bring a bundle of their own are told of it by variables.
const caBundlePath = "/etc/ssl/certs/ca-certificates.crt"

var bundleVariables = []string{
	"SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",
}

// OpenNetwork tells a gateway whose sandbox it serves and under which policy.
func OpenNetwork(gw bothy.Gateway, sb *store.Sandbox) error {
	if o, ok := gw.(bothy.OwnedGateway); ok {
		o.SetOwner(sb.ProjectID)
	}
	return gw.SetPolicy(sb.Network)
}

// Identify gives the machine its identity. What came up before is shut off until
// the policy, set here first, says otherwise.
func (s *Machines) Identify(ctx context.Context, l *Instance, sb *store.Sandbox, t *bothy.Template, took *Steps) error {
	return s.IdentifyAs(ctx, l, sb, t, sb.ID, took)
}

// IdentifyAs is Identify with an id, which is empty as long as the machine has no owner. A
// guest that is what it is to be is not asked.
func (s *Machines) IdentifyAs(ctx context.Context, l *Instance, sb *store.Sandbox, t *bothy.Template, id string, took *Steps) error {
	if err := OpenNetwork(l.Gateway, sb); err != nil {
		return err
	}
	if l.told == nil {
		if a, ok := l.Machine.(bothy.Announcer); ok {
			a.Announced(ctx)
		}
		if err := l.Guest.WaitReady(ctx); err != nil {
			return err
		}
		took.Lap("guest")
	}
	who := s.identity(l, sb, t, id)
	if l.told == nil || !sameIdentity(*l.told, who) {
		if err := l.Guest.Adopt(ctx, who); err != nil {
			return err
		}
		l.told = &who
	}
	took.Lap("adopt")
	sb.GuestKey = l.told.Key
	return nil
}

// IdentifyAgain tells the guest of a sandbox that runs what it is from now on. Its key stays,
// so that a server that dies in between loses nothing.
func (s *Machines) IdentifyAgain(ctx context.Context, l *Instance, sb *store.Sandbox, t *bothy.Template) error {
	who := s.identity(l, sb, t, sb.ID)
	who.Key = sb.GuestKey
	if l.told != nil && sameIdentity(*l.told, who) {
		return nil
	}
	if err := l.Guest.Adopt(ctx, who); err != nil {
		return err
	}
	l.told = &who
	return nil
}

// identity is what the guest of a sandbox is told to be.
func (s *Machines) identity(l *Instance, sb *store.Sandbox, t *bothy.Template, id string) bothy.Identity {
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

// sameIdentity compares all but what is new each time.
func sameIdentity(a, b bothy.Identity) bool {
	a.Key, a.Now, a.Entropy = b.Key, b.Now, b.Entropy
	return reflect.DeepEqual(a, b)
}

// Limit tells the machine its limits, unless it knows them.
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

// Reading tells what the counters of a live sandbox stand at.
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

// StartError prefers the machine's own reason over a guest that did not answer.
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
