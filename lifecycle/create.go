package lifecycle

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/cleanup"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

const (
	// startTimeout bounds the start of one machine, whatever the caller's
	// patience. It and all that bounds a machine is longer for emulated ones.
	startTimeout = 60 * time.Second
	// handOutTimeout bounds the handing out of a machine that is ready. One
	// that takes longer is given up.
	handOutTimeout = 10 * time.Second
)

// Create makes a sandbox; see bothy.SandboxService.
func (s *Service) Create(ctx context.Context, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if err := s.room(); err != nil {
		return nil, err
	}
	if req.SnapshotID != "" {
		return s.createFrom(ctx, req)
	}
	engine, err := s.engines.Choose(ctx, req.Engine, req.RequireAcceleration)
	if err != nil {
		return nil, err
	}
	req.Engine = engine.Info().Name
	sb, err := s.newSandbox(req)
	if err != nil {
		return nil, err
	}
	sb.ProjectID = caller.ProjectID
	if err := s.o.Meter.Allow(sb); err != nil {
		return nil, err
	}
	if err := s.allow(ctx, sb); err != nil {
		return nil, err
	}
	t, err := s.o.Templates.Lookup(sb.Template)
	if err != nil {
		return nil, err
	}
	sb.TemplateDigest = t.Digest
	reservation, err := s.admission.Reserve(ctx, sb.ProjectID)
	if err != nil {
		return nil, err
	}
	defer reservation.Release()
	var undo cleanup.Stack
	defer undo.Run()
	s.pool.asked(shapeOf(sb), t, s.clock.Now(), true)
	claimed := s.claim(shapeOf(sb))
	if claimed != nil {
		undo.Add(func() { s.giveUp(claimed) })
		sb.ID = claimed.id
	}
	if err := s.machines.sealSecrets(sb, req.Secrets); err != nil {
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
	l, err := s.bringUpNew(ctx, sb, t, claimed)
	if err != nil {
		err = s.startFault(err)
		s.startFailed(context.WithoutCancel(ctx), sb, err)
		return nil, err
	}
	l.fresh = true
	s.keep(l, sb, reservation)
	s.ledger.Emit(ctx, bothy.EventSandboxCreated, sb, map[string]string{"template": sb.Template})
	return sb, nil
}

// allow checks that a new sandbox is within its project's plan.
func (s *Service) allow(ctx context.Context, sb *bothy.Sandbox) error {
	if err := s.admission.Check(ctx, sb); err != nil {
		return err
	}
	if err := s.checkRoomToPause(ctx, sb); err != nil {
		return err
	}
	return s.admission.CheckRate(ctx, sb.ProjectID)
}

// createFrom makes a new sandbox from a snapshot. Its size is the snapshot's.
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
			WithHint("Leave template out when snapshot_id is given.")
	}
	// Another engine gets the files, without the memory.
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
			WithHint("Leave memory_mb and disk_mb out when snapshot_id is given.")
	}
	req.MemoryMB, req.DiskMB = o.MemoryMB, o.DiskMB
	if req.CPU == 0 {
		req.CPU = o.CPU
	}
	if req.Network == nil {
		req.Network = &o.Network
	}
	env := maps.Clone(o.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	req.Env = env
	sb, err := s.newSandbox(req)
	if err != nil {
		return nil, err
	}
	sb.ProjectID, sb.TemplateDigest = n.ProjectID, o.TemplateDigest
	sb.ParentSnapshotID, sb.HeadSnapshotID = n.ID, n.ID
	if err := s.machines.sealSecrets(sb, req.Secrets); err != nil {
		return nil, err
	}
	if err := s.giveBudget(ctx, sb, req.Budget, s.rootOf(ctx, n)); err != nil {
		return nil, err
	}
	err = s.startCopy(ctx, sb, checking(ctx, dir, m))
	if err != nil {
		s.dropBudget(context.WithoutCancel(ctx), sb)
	}
	return sb, err
}

func (s *Service) startFailed(ctx context.Context, sb *bothy.Sandbox, cause error) {
	s.log.Warn("sandbox did not start", "sandbox", sb.ID, "error", cause)
	s.dropBudget(ctx, sb)
	x := bothy.Exit{Reason: bothy.EndError, Detail: bothy.AsError(cause).Detail}
	if err := s.ledger.End(ctx, sb, x); err != nil {
		s.log.Error("cannot record a failed start", "sandbox", sb.ID, "error", err)
	}
}

// bringUpNew brings up a new sandbox in the quickest way that works: it takes a
// machine that is ready, wakes one from a golden snapshot, or boots one. A sandbox
// that gets one that is ready need not be stored before: should the server die, the
// next one finds a machine that is nobody's, as it was.
func (s *Service) bringUpNew(ctx context.Context, sb *bothy.Sandbox, t *bothy.Template, claimed *live) (*live, error) {
	if claimed != nil {
		l, err := s.handOut(ctx, sb, t, claimed)
		if err == nil || ctx.Err() != nil || bothy.ErrorCode(s.startFault(err)) == bothy.CodeDiskFull {
			return l, err
		}
		s.log.Warn("a ready sandbox could not be handed out, so another is started", "sandbox", sb.ID, "error", err)
		if err := s.ledger.Transition(ctx, sb, bothy.StateStarting); err != nil {
			return nil, err
		}
	}
	if g := s.goldenFor(shapeOf(sb)); g != nil {
		l, err := s.bringUp(ctx, sb, t, g.key, func(ctx context.Context) (bothy.Machine, error) {
			return s.startGolden(ctx, sb, t, g)
		})
		if err == nil || ctx.Err() != nil {
			return l, err
		}
		s.dropGolden(ctx, shapeOf(sb), g, err)
	}
	return s.bringUp(ctx, sb, t, "", func(ctx context.Context) (bothy.Machine, error) {
		return s.engines.Get(sb.Engine).Start(ctx, s.machines.machineSpec(sb, t))
	})
}

// handOut makes a machine that is ready this sandbox's own. When that fails
// nothing of the machine is left.
func (s *Service) handOut(ctx context.Context, sb *bothy.Sandbox, t *bothy.Template, l *live) (*live, error) {
	ctx, cancel := context.WithTimeout(ctx, s.engines.Patience(sb.Engine, handOutTimeout))
	defer cancel()
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(func() { s.giveUp(l) })
	release, err := s.machines.need(l)
	if err != nil {
		return nil, err
	}
	defer release()
	l.project, l.limits = sb.ProjectID, limitsOf(sb)
	if err := s.machines.giveSecrets(l.gateway, sb); err != nil {
		return nil, err
	}
	if err := s.settle(ctx, l, sb, t, newLaps()); err != nil {
		return nil, err
	}
	undo.Release()
	return l, nil
}

// bringUp makes a machine, connects and adopts it, and stores the sandbox as
// running. key is the one that the guest knows already, if any. On failure
// nothing of the machine is left, and the sandbox is stored as it was.
func (s *Service) bringUp(ctx context.Context, sb *bothy.Sandbox, t *bothy.Template, key string, start func(context.Context) (bothy.Machine, error)) (*live, error) {
	ctx, cancel := context.WithTimeout(ctx, s.engines.Patience(sb.Engine, startTimeout))
	defer cancel()
	var undo cleanup.Stack
	defer undo.Run()

	s.pool.asked(shapeOf(sb), t, s.clock.Now(), false)
	took := newLaps()
	m, err := start(ctx)
	if err != nil {
		return nil, err
	}
	undo.Add(func() { s.machines.destroy(m) })
	took.lap("engine")
	if err := failpoint.Hit("lifecycle.started"); err != nil {
		return nil, err
	}
	l, err := s.machines.attach(ctx, sb, m, key)
	if err != nil {
		return nil, err
	}
	undo.Add(l.detach)
	took.lap("cable")
	if err := s.settle(ctx, l, sb, t, took); err != nil {
		return nil, err
	}
	undo.Release()
	return l, nil
}

// settle makes a connected machine the sandbox's own, and stores the sandbox as
// running.
func (s *Service) settle(ctx context.Context, l *live, sb *bothy.Sandbox, t *bothy.Template, took *laps) error {
	if err := s.machines.adopt(ctx, l, sb, t, took); err != nil {
		return startError(l.machine, err)
	}
	if err := failpoint.Hit("lifecycle.adopted"); err != nil {
		return err
	}
	if err := l.limit(ctx); err != nil {
		return err
	}
	took.lap("limits")
	now := s.clock.Now().UTC()
	sb.StartedAt = &now
	sb.ExpiresAt = expiry(now, sb.TimeoutSeconds)
	sb.EngineState = l.machine.State()
	info := s.engines.Get(sb.Engine).Info()
	sb.Acceleration, sb.Kernel = info.Acceleration, info.Kernel
	sb.MeterState = s.o.Meter.Starting(ctx, sb, l.reading)
	if err := s.ledger.Transition(ctx, sb, bothy.StateRunning); err != nil {
		return err
	}
	took.lap("store")
	s.log.LogAttrs(ctx, slog.LevelInfo, "sandbox is running", slog.String("sandbox", sb.ID), took.attr())
	return nil
}

func expiry(from time.Time, seconds int) *time.Time {
	if seconds == 0 {
		return nil
	}
	t := from.Add(time.Duration(seconds) * time.Second)
	return &t
}
