package lifecycle

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/cleanup"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// assignTimeout is how long assigning a ready machine may take. Then it is discarded.
const assignTimeout = 10 * time.Second

// A launch is the plan of a sandbox that is about to start, for the first time or again.
type launch struct {
	sb      *store.Sandbox
	secrets []bothy.Secret
	budget  float64
	// find completes the plan with what has to be looked up or fetched, once the sandbox is
	// allowed. Optional.
	find func() error

	// t is the image that the machine starts from, and from the snapshot, if any.
	t    *store.Template
	from *openedSnapshot
	// boot starts the image itself and no golden snapshot of it, with changes in a tar, if any.
	boot  bool
	files string
	// ready allows a ready machine, restored from the snapshot memory if that is set.
	ready  bool
	memory string

	// again is set for a sandbox that was started before. It is locked, and has its secrets.
	again bool
	// event defaults to bothy.EventSandboxCreated.
	event string
	data  map[string]string

	// held is to be released once the launch is over.
	held cleanup.Stack
}

// openFor opens the snapshot that a launch starts from.
func (s *Service) openFor(ctx context.Context, c *launch, id string) error {
	dir, m, release, err := s.openSnapshot(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	from := checking(ctx, dir, m)
	c.from = from
	c.held.Add(func() {
		cancel()
		_ = from.verified()
		release()
	})
	return nil
}

// launch starts a sandbox. All ways to create one, and a restart, come through here: first what is
// planned is compared with budget and plan, then it waits for room, and only then is anything given
// to it: an id, secrets, a budget, a row, and at last a machine.
//
// A sandbox that gets a ready machine need not be stored in advance: if the server dies, the
// next one finds a machine without an owner.
func (s *Service) launch(ctx context.Context, c *launch) error {
	sb := c.sb
	if err := s.room(); err != nil {
		return err
	}
	if err := s.allow(ctx, sb); err != nil {
		return err
	}
	if c.find != nil {
		if err := c.find(); err != nil {
			return err
		}
	}
	reservation, err := s.admission.Reserve(ctx, sb.ProjectID)
	if err != nil {
		return err
	}
	defer reservation.Release()
	var undo cleanup.Stack
	defer undo.Run()
	var claimed *instance.Instance
	if c.ready {
		s.warm.Asked(sb, c.t, c.memory, true)
		if claimed = s.warm.Claim(sb, c.memory); claimed != nil {
			undo.Add(func() { s.warm.Discard(claimed) })
			sb.ID = claimed.ID
		}
	}
	if err := s.machines.SealSecrets(sb, c.secrets); err != nil {
		return err
	}
	if err := s.giveBudget(ctx, sb, c.budget); err != nil {
		return err
	}
	if !c.again {
		undo.Add(func() { s.dropBudget(context.WithoutCancel(ctx), sb) })
		defer s.ledger.Lock(sb.ID)()
	}
	if claimed == nil {
		if err := s.ledger.Transition(ctx, sb, bothy.StateStarting); err != nil {
			return err
		}
	}
	undo.Release()
	l, err := s.assignOrStart(ctx, c, claimed)
	if err != nil {
		return s.startFailed(context.WithoutCancel(ctx), c, err)
	}
	l.Fresh = sb.Resumed == nil
	s.track(l, sb, reservation)
	data := map[string]string{"template": sb.Template}
	maps.Copy(data, c.data)
	s.ledger.Emit(ctx, cmp.Or(c.event, bothy.EventSandboxCreated), sb, data)
	return nil
}

// startFailed records why a start failed, and returns the error for the caller.
func (s *Service) startFailed(ctx context.Context, c *launch, err error) error {
	sb := c.sb
	if !c.again {
		s.dropBudget(ctx, sb)
	}
	if isPlanExceeded(err) {
		return err // no sandbox was created
	}
	err = s.startFault(err)
	s.log.Warn("sandbox did not start", "sandbox", sb.ID, "error", err)
	x := bothy.Exit{Reason: bothy.EndError, Detail: bothy.AsError(err).Detail}
	if c.again {
		x.Detail = "cannot restart it: " + x.Detail
	}
	if err := s.ledger.End(ctx, sb, x); err != nil {
		s.log.Error("cannot record a failed start", "sandbox", sb.ID, "error", err)
	}
	return err
}

// allow returns an error if a new sandbox exceeds its project's budget or plan, and counts it
// against the plan's rate.
func (s *Service) allow(ctx context.Context, sb *store.Sandbox) error {
	if err := s.allowSize(ctx, sb); err != nil {
		return err
	}
	return s.admission.CheckRate(ctx, sb.ProjectID)
}

// allowSize is allow without the rate.
func (s *Service) allowSize(ctx context.Context, sb *store.Sandbox) error {
	if err := s.o.Meter.Allow(sb); err != nil {
		return err
	}
	if err := s.admission.Check(ctx, &sb.Sandbox); err != nil {
		return err
	}
	return s.checkRoomToPause(ctx, sb)
}

// assignOrStart starts a new sandbox the fastest way that works.
func (s *Service) assignOrStart(ctx context.Context, c *launch, claimed *instance.Instance) (*instance.Instance, error) {
	if claimed == nil {
		return s.start(ctx, c)
	}
	sb := c.sb
	if c.memory == "" {
		s.setProcessor(sb, nil)
	} else {
		sb.Resumed = &bothy.Resumed{SnapshotID: c.memory, Kind: bothy.SnapshotMemory, At: s.clock.Now().UTC()}
	}
	l, err := s.assign(ctx, sb, c.t, claimed)
	if err == nil || ctx.Err() != nil || isPlanExceeded(err) || bothy.ErrorCode(s.startFault(err)) == bothy.CodeDiskFull {
		return l, err
	}
	s.log.Warn("cannot assign a ready machine; starting another one", "sandbox", sb.ID, "error", err)
	sb.Resumed = nil
	if err := s.ledger.Transition(ctx, sb, bothy.StateStarting); err != nil {
		return nil, err
	}
	return s.start(ctx, c)
}

// start starts a machine from what was planned.
func (s *Service) start(ctx context.Context, c *launch) (*instance.Instance, error) {
	switch sb := c.sb; {
	case c.from != nil:
		return s.startFrom(ctx, sb, c.from)
	case c.boot:
		return s.startMachine(ctx, sb, c.t, "", func(ctx context.Context) (bothy.Machine, error) {
			spec := s.machines.MachineSpec(sb, c.t)
			spec.FilesTar = c.files
			return s.engines.Get(sb.Engine).Start(ctx, spec)
		})
	}
	return s.startNew(ctx, c.sb, c.t)
}

// startNew restores a machine from a golden snapshot, or boots one.
func (s *Service) startNew(ctx context.Context, sb *store.Sandbox, t *store.Template) (*instance.Instance, error) {
	s.warm.Asked(sb, t, "", false)
	s.setProcessor(sb, nil)
	if g := s.warm.Golden(sb); g != nil {
		l, err := s.startMachine(ctx, sb, t, g.Key, func(ctx context.Context) (bothy.Machine, error) {
			return s.warm.RestoreGolden(ctx, sb, t, g)
		})
		if err == nil || ctx.Err() != nil {
			return l, err
		}
		s.warm.GoldenFailed(ctx, sb, g, err)
	}
	return s.startMachine(ctx, sb, t, "", func(ctx context.Context) (bothy.Machine, error) {
		return s.engines.Get(sb.Engine).Start(ctx, s.machines.MachineSpec(sb, t))
	})
}

// assign turns a ready machine into this sandbox. If that fails, the machine is destroyed.
func (s *Service) assign(ctx context.Context, sb *store.Sandbox, t *store.Template, l *instance.Instance) (*instance.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, s.engines.Patience(sb.Engine, assignTimeout))
	defer cancel()
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(func() { s.warm.Discard(l) })
	release, err := s.machines.Wake(l)
	if err != nil {
		return nil, err
	}
	defer release()
	l.Project, l.Limits = sb.ProjectID, instance.LimitsOf(sb)
	if err := s.machines.GiveSecrets(l.Gateway, sb); err != nil {
		return nil, err
	}
	if err := s.activate(ctx, l, sb, t, instance.NewSteps()); err != nil {
		return nil, err
	}
	undo.Release()
	return l, nil
}

// startMachine starts a machine, attaches to it, gives it its identity, and stores the sandbox
// as running. key is the key that the guest already has, if any. On failure the machine is
// destroyed and the stored sandbox is unchanged.
func (s *Service) startMachine(ctx context.Context, sb *store.Sandbox, t *store.Template, key string, start func(context.Context) (bothy.Machine, error)) (*instance.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, s.engines.Patience(sb.Engine, instance.StartTimeout))
	defer cancel()
	var undo cleanup.Stack
	defer undo.Run()

	took := instance.NewSteps()
	m, err := start(ctx)
	if err != nil {
		return nil, err
	}
	undo.Add(func() { s.machines.Destroy(m) })
	took.Lap("engine")
	if err := failpoint.Hit("lifecycle.started"); err != nil {
		return nil, err
	}
	l, err := s.machines.Attach(ctx, sb, m, key)
	if err != nil {
		return nil, err
	}
	undo.Add(l.Detach)
	took.Lap("attach")
	if err := s.activate(ctx, l, sb, t, took); err != nil {
		return nil, err
	}
	undo.Release()
	return l, nil
}

// activate gives an attached machine the sandbox's identity, and stores the sandbox as running.
func (s *Service) activate(ctx context.Context, l *instance.Instance, sb *store.Sandbox, t *store.Template, took *instance.Steps) error {
	if err := s.machines.Identify(ctx, l, sb, t, took); err != nil {
		return instance.StartError(l.Machine, err)
	}
	if err := failpoint.Hit("lifecycle.adopted"); err != nil {
		return err
	}
	if err := l.Limit(ctx); err != nil {
		return err
	}
	took.Lap("limits")
	now := s.clock.Now().UTC()
	sb.StartedAt = &now
	sb.ExpiresAt = expiry(now, sb.TimeoutSeconds)
	sb.EngineState = l.Machine.State()
	sb.StopResuming()
	info := s.engines.Get(sb.Engine).Info()
	sb.Acceleration, sb.Kernel = info.Acceleration, info.Kernel
	sb.MeterState = s.o.Meter.Starting(ctx, sb, l.Reading)
	if err := s.ledger.Transition(ctx, sb, bothy.StateRunning); err != nil {
		return err
	}
	took.Lap("store")
	s.log.LogAttrs(ctx, slog.LevelInfo, "sandbox is running", slog.String("sandbox", sb.ID), took.Attr())
	return nil
}

// startFrom wakes a machine from a snapshot.
func (s *Service) startFrom(ctx context.Context, sb *store.Sandbox, from *openedSnapshot) (*instance.Instance, error) {
	t, err := s.templateOf(ctx, sb.ProjectID, from.m.Sandbox.Template, from.m.Sandbox.TemplateDigest)
	if err != nil {
		return nil, err
	}
	s.warm.Asked(sb, t, "", false)
	before := sb.Resumed
	l, err := s.startMachine(ctx, sb, t, from.m.GuestKey, func(ctx context.Context) (bothy.Machine, error) {
		machine, how, err := s.restore(ctx, sb, t, from)
		sb.Resumed = how
		if how != nil && how.Kind == bothy.SnapshotMemory {
			s.setProcessor(sb, from.m)
		} else {
			s.setProcessor(sb, nil)
		}
		return machine, err
	})
	if err != nil {
		sb.Resumed = before
	}
	return l, err
}
