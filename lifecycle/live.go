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
	"github.com/bothy-dev/bothy/lifecycle/admission"
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

// attach opens the cable of a machine and makes its gateway and guest. The
// gateway is shut.
func (s *Service) attach(ctx context.Context, sb *bothy.Sandbox, m bothy.Machine, key string) (*live, error) {
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
func (s *Service) adopt(ctx context.Context, l *live, sb *bothy.Sandbox, t *bothy.Template, took *laps) error {
	return s.adoptAs(ctx, l, sb, t, sb.ID, took)
}

// adoptAs is adopt with an id, which is empty as long as nobody owns the machine. A
// guest that is what it is to be is not asked.
func (s *Service) adoptAs(ctx context.Context, l *live, sb *bothy.Sandbox, t *bothy.Template, id string, took *laps) error {
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
func (s *Service) identity(l *live, sb *bothy.Sandbox, t *bothy.Template, id string) bothy.Identity {
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
		Env: env, Now: s.clock.Now(), Entropy: newEntropy(),
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

// keep makes a machine one of the live ones: from here on its time, its memory
// and its end are watched. It takes over the reservation, which there is
// unless the last server left the machine.
func (s *Service) keep(l *live, sb *bothy.Sandbox, r *admission.Reservation) {
	ctx, cancel := context.WithCancel(s.background)
	l.cancel = cancel
	s.o.Meter.Started(ctx, sb, l.reading, r == nil)
	s.mu.Lock()
	l.root = sb.BudgetRoot
	s.live[l.id] = l
	s.mu.Unlock()
	s.admission.Running(l.id, l.project, r)
	s.arm(l, sb.ExpiresAt)
	if s.register.Dir != "" {
		row := *sb
		s.watchers.Go(func() { s.enlist(l, row) })
	}
	s.watchers.Go(func() { s.watchMemory(ctx, l) })
	s.watchers.Go(func() { s.watchExit(ctx, l) })
	l.use.touch(s.clock.Now())
	s.watchIdle(l, sb.IdleSeconds)
	s.watchStill(l, true, !l.fresh)
	s.pool.touch()
}

// forget is the opposite of keep, without the machine's end.
func (s *Service) forget(l *live) {
	s.o.Meter.Stopped(context.WithoutCancel(s.background), l.id)
	s.mu.Lock()
	if s.live[l.id] == l {
		delete(s.live, l.id)
		s.admission.Remove(l.id)
	}
	s.mu.Unlock()
	s.admission.Admit()
	s.strike(l)
	l.detach()
}

// list has a machine found by its id, or not.
func (s *Service) list(l *live, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found {
		s.live[l.id] = l
		s.admission.Running(l.id, l.project, nil)
	} else if s.live[l.id] == l {
		delete(s.live, l.id)
		s.admission.Remove(l.id)
	}
}

func (s *Service) liveByID(id string) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[id]
}

// watchExit notices a machine that ended by itself.
func (s *Service) watchExit(ctx context.Context, l *live) {
	select {
	case <-ctx.Done():
		return
	case <-l.machine.Done():
	}
	l.mu.Lock()
	expected := l.ending
	l.mu.Unlock()
	if expected {
		return
	}
	unlock := s.ledger.Lock(l.id)
	defer unlock()
	if s.liveByID(l.id) != l {
		return
	}
	s.forget(l)
	// ctx has just been cancelled by forget.
	s.recordExit(context.WithoutCancel(ctx), l)
}

func (s *Service) recordExit(ctx context.Context, l *live) {
	defer close(l.gone)
	x := l.machine.Exit()
	l.mu.Lock()
	if l.why != nil {
		x = *l.why
	}
	l.mu.Unlock()
	s.log.Info("sandbox ended by itself", "sandbox", l.id, "reason", x.Reason, "detail", x.Detail)
	if err := s.endByID(ctx, l.id, x); err != nil {
		s.log.Error("cannot record the end of a sandbox, and try again until it is", "sandbox", l.id, "error", err)
		s.ledger.Retry("end "+l.id, func(ctx context.Context) error {
			unlock, err := s.ledger.LockToWork(ctx, l.id)
			if err != nil {
				return err
			}
			defer unlock()
			return s.endByID(ctx, l.id, x)
		})
	}
}

// endByID stores the end of a sandbox that has no machine any more. The caller
// holds its lock.
func (s *Service) endByID(ctx context.Context, id string, x bothy.Exit) error {
	sb, err := s.ledger.Sandbox(ctx, id)
	if bothy.ErrorCode(err) == bothy.CodeSandboxNotFound {
		return nil
	}
	if err != nil || sb.State.Ended() || s.liveByID(id) != nil {
		return err
	}
	return s.ledger.End(ctx, sb, x)
}
