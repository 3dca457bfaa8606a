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
	"github.com/bothy-dev/bothy/lifecycle/admission"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

const (
	// assignTimeout is how long assigning a ready machine may take. Then it is discarded.
	assignTimeout = 10 * time.Second
)

// Create creates a sandbox; see bothy.SandboxService.
func (s *Service) Create(ctx context.Context, req bothy.SandboxCreate) (made *bothy.Sandbox, err error) {
	defer func() { bothy.LeaveToOthers(ctx, err) }()
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if sb, err := s.madeBefore(ctx, caller.ProjectID); sb != nil || err != nil {
		return sb, err
	}
	repo, err := repoOf(&req)
	if err != nil {
		return nil, err
	}
	if repo != nil {
		defer func() {
			if err != nil {
				return
			}
			if err = s.clone(ctx, made.ID, repo); err != nil {
				made = nil
			}
		}()
	}
	if err := s.checkHostLabels(req.HostLabels); err != nil {
		return nil, err
	}
	if err := s.room(); err != nil {
		return nil, err
	}
	if req.SnapshotID != "" {
		return s.createFrom(ctx, req)
	}
	asked := req
	engine, err := s.engines.Choose(ctx, req.Engine, req.RequireAcceleration)
	if err != nil {
		return nil, err
	}
	req.Engine = engine.Info().Name
	sb, err := s.newSandbox(ctx, req)
	if err != nil {
		return nil, err
	}
	sb.ProjectID = caller.ProjectID
	if err := s.allow(ctx, sb); err != nil {
		return nil, err
	}
	t, err := s.o.Templates.LookupFor(ctx, sb.ProjectID, sb.Template)
	if err != nil {
		return nil, err
	}
	if t.Memory != nil && (asked.Engine == "" || asked.Engine == t.Memory.Engine) {
		return s.createFromMemory(ctx, sb.ProjectID, asked, t)
	}
	sb.TemplateDigest = t.Digest
	return s.createOf(ctx, sb, t, "", req, func() (*instance.Instance, error) { return s.startNew(ctx, sb, t) })
}

// madeBefore returns the sandbox that was created by an earlier attempt at the same request, whose
// server died before it answered; nil if there is none.
func (s *Service) madeBefore(ctx context.Context, project string) (*bothy.Sandbox, error) {
	o := bothy.OnceFrom(ctx)
	if o == nil {
		return nil, nil
	}
	sb, err := s.o.Store.SandboxByKey(ctx, project, o.Key, s.clock.Now().Add(-store.KeyLife))
	switch {
	case bothy.ErrorCode(err) == bothy.CodeSandboxNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	case sb.KeyPrint != o.Print:
		return nil, bothy.Errorf(bothy.CodeIdempotency, "the Idempotency-Key %q was used for another request", o.Key).
			WithHint("Use a new key for every new request, and the old one only to repeat the same.")
	case sb.State == bothy.StateStarting || sb.State == bothy.StateStopping:
		e := bothy.Errorf(bothy.CodeConflict, "the sandbox %s of the first request with the Idempotency-Key %q is %s", sb.ID, o.Key, sb.State).
			WithHint("Ask again in a second, with the same key.")
		e.RetryAfter = time.Second
		return nil, e
	}
	return s.public(sb, s.budgetsOf(ctx, sb)), nil
}

// CheckCreate returns the errors that Create would return at any time: a missing template or
// snapshot, or a size beyond the project's plan. It does not check capacity and budgets.
func (s *Service) CheckCreate(ctx context.Context, req bothy.SandboxCreate) error {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite)
	if err != nil {
		return err
	}
	if req.SnapshotID != "" {
		_, err := s.findSnapshot(ctx, req.SnapshotID, bothy.ScopeSandboxesWrite)
		return err
	}
	if _, err := s.engines.Choose(ctx, req.Engine, req.RequireAcceleration); err != nil {
		return err
	}
	sb, err := s.newSandbox(ctx, req)
	if err != nil {
		return err
	}
	sb.ProjectID = caller.ProjectID
	if err := s.machines.SealSecrets(sb, req.Secrets); err != nil {
		return err
	}
	if err := s.admission.Check(ctx, &sb.Sandbox); err != nil {
		return err
	}
	_, err = s.o.Templates.LookupFor(ctx, sb.ProjectID, sb.Template)
	return err
}

// createOf creates a sandbox that its project's plan allows. It takes a ready machine, restored
// from the given memory snapshot if any, or starts one.
//
// A sandbox that gets a ready machine need not be stored in advance: if the server dies, the
// next one finds a machine without an owner.
func (s *Service) createOf(ctx context.Context, sb *store.Sandbox, t *store.Template, memory string, req bothy.SandboxCreate, start func() (*instance.Instance, error)) (*bothy.Sandbox, error) {
	reservation, err := s.admission.Reserve(ctx, sb.ProjectID)
	if err != nil {
		return nil, err
	}
	defer reservation.Release()
	var undo cleanup.Stack
	defer undo.Run()
	s.warm.Asked(sb, t, memory, true)
	claimed := s.warm.Claim(sb, memory)
	if claimed != nil {
		undo.Add(func() { s.warm.Discard(claimed) })
		sb.ID = claimed.ID
	}
	if err := s.machines.SealSecrets(sb, req.Secrets); err != nil {
		return nil, err
	}
	if err := s.giveBudget(ctx, sb, req.Budget, ""); err != nil {
		return nil, err
	}
	undo.Add(func() { s.dropBudget(context.WithoutCancel(ctx), sb) })
	unlock := s.ledger.Lock(sb.ID)
	defer unlock()
	if claimed == nil {
		if err := s.ledger.Transition(ctx, sb, bothy.StateStarting); err != nil {
			return nil, err
		}
	}
	undo.Release()
	l, err := s.assignOrStart(ctx, sb, t, memory, claimed, start)
	return s.created(ctx, sb, l, err, reservation)
}

// created records that a new sandbox runs, or why its start failed.
func (s *Service) created(ctx context.Context, sb *store.Sandbox, l *instance.Instance, err error, r *admission.Reservation) (*bothy.Sandbox, error) {
	if isPlanExceeded(err) {
		s.dropBudget(context.WithoutCancel(ctx), sb) // no sandbox was created
		return nil, err
	}
	if err != nil {
		err = s.startFault(err)
		s.startFailed(context.WithoutCancel(ctx), sb, err)
		return nil, err
	}
	l.Fresh = sb.Resumed == nil
	s.track(l, sb, r)
	s.ledger.Emit(ctx, bothy.EventSandboxCreated, sb, map[string]string{"template": sb.Template})
	return sb.Public(), nil
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

// createFrom creates a sandbox from a snapshot. It has the snapshot's size.
func (s *Service) createFrom(ctx context.Context, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	n, err := s.findSnapshot(ctx, req.SnapshotID, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	dir, m, done, err := s.openSnapshot(ctx, n.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	o := m.Sandbox
	if req.Template != "" && req.Template != o.Template {
		return nil, invalid("snapshot %s is of template %q, not %q", n.ID, o.Template, req.Template).
			WithHint("Omit template when snapshot_id is given.")
	}
	// On another engine only the files are restored.
	if req.Engine == "" {
		req.Engine = m.Engine
	}
	req.RequireAcceleration = req.RequireAcceleration || o.Accelerated && req.Engine == m.Engine
	engine, err := s.engines.Choose(ctx, req.Engine, req.RequireAcceleration)
	if err != nil {
		return nil, err
	}
	req.Template, req.Engine, req.Size = o.Template, engine.Info().Name, ""
	if (req.MemoryMB != 0 && req.MemoryMB != o.MemoryMB) || (req.DiskMB != 0 && req.DiskMB != o.DiskMB) {
		return nil, invalid("a sandbox from snapshot %s has %d MB of memory and %d MB of disk", n.ID, o.MemoryMB, o.DiskMB).
			WithHint("Omit memory_mb and disk_mb when snapshot_id is given.")
	}
	req.MemoryMB, req.DiskMB = o.MemoryMB, o.DiskMB
	s.inherit(&req, o)
	if err := s.checkHostLabels(req.HostLabels); err != nil {
		return nil, err
	}
	sb, err := s.newSandbox(ctx, req)
	if err != nil {
		return nil, err
	}
	sb.ProjectID, sb.TemplateDigest = n.ProjectID, o.TemplateDigest
	sb.ParentSnapshotID, sb.HeadSnapshotID = n.ID, n.ID
	sb.ParentSandboxID, sb.ForkedAt = n.SandboxID, &n.CreatedAt
	if err := s.machines.SealSecrets(sb, req.Secrets); err != nil {
		return nil, err
	}
	if err := s.giveBudget(ctx, sb, req.Budget, s.rootOf(ctx, n)); err != nil {
		return nil, err
	}
	if err := s.startCopy(ctx, sb, checking(ctx, dir, m)); err != nil {
		s.dropBudget(context.WithoutCancel(ctx), sb)
		return nil, err
	}
	return sb.Public(), nil
}

// inherit gives a new sandbox the settings of the one that a snapshot was taken of, except those
// that the request sets.
func (s *Service) inherit(req *bothy.SandboxCreate, o snapshot.Origin) {
	req.CPU = cmp.Or(req.CPU, o.CPU)
	if req.Network == nil {
		req.Network = &o.Network
	}
	if req.TimeoutSeconds == nil {
		req.TimeoutSeconds = &o.TimeoutSeconds
	}
	req.OnTimeout, req.OnHostLoss = cmp.Or(req.OnTimeout, o.OnTimeout), cmp.Or(req.OnHostLoss, o.OnHostLoss)
	if req.IdleSeconds == 0 {
		req.IdleSeconds, req.EndWhenIdle = o.IdleSeconds, o.EndWhenIdle
	}
	req.AutoResume = req.AutoResume || o.AutoResume
	req.CheckpointSeconds = cmp.Or(req.CheckpointSeconds, o.CheckpointSeconds)
	env := maps.Clone(o.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	req.Env = env
	if req.Metadata == nil {
		req.Metadata = o.Metadata
	}
	if req.HostLabels == nil && s.o.Cluster.Shared() {
		req.HostLabels = o.HostLabels
	}
}

func (s *Service) startFailed(ctx context.Context, sb *store.Sandbox, cause error) {
	s.log.Warn("sandbox did not start", "sandbox", sb.ID, "error", cause)
	s.dropBudget(ctx, sb)
	x := bothy.Exit{Reason: bothy.EndError, Detail: bothy.AsError(cause).Detail}
	if err := s.ledger.End(ctx, sb, x); err != nil {
		s.log.Error("cannot record a failed start", "sandbox", sb.ID, "error", err)
	}
}

// assignOrStart starts a new sandbox the fastest way that works.
func (s *Service) assignOrStart(ctx context.Context, sb *store.Sandbox, t *store.Template, memory string, claimed *instance.Instance, start func() (*instance.Instance, error)) (*instance.Instance, error) {
	if claimed == nil {
		return start()
	}
	if memory == "" {
		s.sees(sb, nil)
	} else {
		sb.Resumed = &bothy.Resumed{SnapshotID: memory, Kind: bothy.SnapshotMemory, At: s.clock.Now().UTC()}
	}
	l, err := s.assign(ctx, sb, t, claimed)
	if err == nil || ctx.Err() != nil || isPlanExceeded(err) || bothy.ErrorCode(s.startFault(err)) == bothy.CodeDiskFull {
		return l, err
	}
	s.log.Warn("cannot assign a ready machine; starting another one", "sandbox", sb.ID, "error", err)
	sb.Resumed = nil
	if err := s.ledger.Transition(ctx, sb, bothy.StateStarting); err != nil {
		return nil, err
	}
	return start()
}

// startNew restores a machine from a golden snapshot, or boots one.
func (s *Service) startNew(ctx context.Context, sb *store.Sandbox, t *store.Template) (*instance.Instance, error) {
	s.warm.Asked(sb, t, "", false)
	s.sees(sb, nil)
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
	took.Lap("cable")
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

// startCopy starts one sandbox from a snapshot. A copy that does not adopt its own identity is
// destroyed.
func (s *Service) startCopy(ctx context.Context, c *store.Sandbox, from *frozen) error {
	if err := s.room(); err != nil {
		return err
	}
	if err := s.allow(ctx, c); err != nil {
		return err
	}
	reservation, err := s.admission.Reserve(ctx, c.ProjectID)
	if err != nil {
		return err
	}
	defer reservation.Release()
	unlock := s.ledger.Lock(c.ID)
	defer unlock()
	if err := s.ledger.Transition(ctx, c, bothy.StateStarting); err != nil {
		return err
	}
	l, err := s.startFrom(ctx, c, from)
	if err != nil {
		err = s.startFault(err)
		s.startFailed(context.WithoutCancel(ctx), c, err)
		return err
	}
	s.track(l, c, reservation)
	s.ledger.Emit(ctx, bothy.EventSandboxCreated, c, map[string]string{"template": c.Template, "parent_snapshot_id": c.ParentSnapshotID, "parent_sandbox_id": c.ParentSandboxID})
	return nil
}

// createFromMemory creates a sandbox from a template with memory. It is already counted against
// the plan's rate.
func (s *Service) createFromMemory(ctx context.Context, project string, req bothy.SandboxCreate, t *store.Template) (*bothy.Sandbox, error) {
	from := t.Memory
	dir, m, done, err := s.openSnapshot(ctx, from.SnapshotID)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "the memory snapshot of the template %s is missing or damaged", t.Ref()).
			WithHint("Create it again: bothy template create --memory --from SANDBOX %s.", t.Ref()).Because(err)
	}
	defer done()
	if req.Size != "" || req.MemoryMB != 0 && req.MemoryMB != from.MemoryMB || req.DiskMB != 0 && req.DiskMB != from.DiskMB {
		return nil, invalid("the processes of template %s need %d MB of memory and %d MB of disk", t.Ref(), from.MemoryMB, from.DiskMB).
			WithHint("Omit size, memory_mb and disk_mb, or create a template without memory.")
	}
	req.MemoryMB, req.DiskMB, req.Template, req.Engine = from.MemoryMB, from.DiskMB, t.Ref(), m.Engine
	if req.CPU == 0 {
		req.CPU = from.CPU
	}
	sb, err := s.newSandbox(ctx, req)
	if err != nil {
		return nil, err
	}
	sb.ProjectID, sb.TemplateDigest = project, m.Sandbox.TemplateDigest
	if err := s.allowSize(ctx, sb); err != nil {
		return nil, err
	}
	files, err := s.templateOf(ctx, sb.ProjectID, m.Sandbox.Template, m.Sandbox.TemplateDigest)
	if err != nil {
		return nil, err
	}
	s.sees(sb, m)
	return s.createOf(ctx, sb, files, from.SnapshotID, req, func() (*instance.Instance, error) { return s.startFrom(ctx, sb, checking(ctx, dir, m)) })
}

// startFrom wakes a machine from a snapshot.
func (s *Service) startFrom(ctx context.Context, sb *store.Sandbox, from *frozen) (*instance.Instance, error) {
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
			s.sees(sb, from.m)
		} else {
			s.sees(sb, nil)
		}
		return machine, err
	})
	if err != nil {
		sb.Resumed = before
	}
	return l, err
}
