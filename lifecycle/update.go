package lifecycle

import (
	"context"
	"maps"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/cleanup"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// Update changes a running or paused sandbox.
func (s *Service) Update(ctx context.Context, id string, u bothy.SandboxUpdate) (*bothy.Sandbox, error) {
	sb, unlock, err := s.ledger.FindLocked(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if sb.State != bothy.StateRunning && sb.State != bothy.StatePaused {
		return nil, s.wrongState(sb)
	}
	before := sb.Network
	s.apply(sb, u)
	if err := s.check(&sb.Sandbox); err != nil {
		return nil, err
	}
	if err := s.admission.CheckChange(ctx, &sb.Sandbox, u); err != nil {
		return nil, err
	}
	if u.OnTimeout != nil && *u.OnTimeout == bothy.TimeoutPause {
		if err := s.checkRoomToPause(ctx, sb); err != nil {
			return nil, err
		}
	}
	// Apply all changes or none.
	var undo cleanup.Stack
	defer undo.Run()
	if u.Budget != nil {
		budgeted := *sb
		limit := s.budgetOf(sb)
		if err := s.changeBudget(ctx, sb, *u.Budget); err != nil {
			return nil, err
		}
		undo.Add(func() { s.restoreBudget(context.WithoutCancel(ctx), &budgeted, limit) })
	}
	l := s.instance(id)
	if u.Network != nil && l != nil {
		if err := l.Gateway.SetPolicy(sb.Network); err != nil {
			return nil, err
		}
		undo.Add(func() { l.Gateway.SetPolicy(before) })
	}
	if u.Secrets != nil {
		old := *sb
		undo.Add(func() { s.restoreSecrets(context.WithoutCancel(ctx), l, &old) })
		if err := s.replaceSecrets(ctx, l, sb, u.Secrets); err != nil {
			return nil, err
		}
	}
	if err := s.ledger.Put(ctx, sb); err != nil {
		return nil, err
	}
	undo.Release()
	s.o.Meter.Changed(ctx, sb)
	if l != nil {
		s.mu.Lock()
		l.Root = sb.BudgetRoot
		s.mu.Unlock()
		s.arm(l, sb.ExpiresAt)
		s.watchIdle(l, sb.IdleSeconds)
		if u.CheckpointSeconds != nil {
			s.watchCheckpoints(l, sb)
		}
	}
	s.ledger.Emit(ctx, bothy.EventSandboxUpdated, sb, nil)
	return sb.Public(), nil
}

// replaceSecrets replaces a sandbox's secrets.
func (s *Service) replaceSecrets(ctx context.Context, l *instance.Instance, sb *store.Sandbox, list []bothy.Secret) error {
	if err := s.machines.ReplaceSecrets(sb, list); err != nil || l == nil {
		return err
	}
	return s.updateSecrets(ctx, l, sb)
}

// restoreSecrets undoes replaceSecrets after a failed update.
func (s *Service) restoreSecrets(ctx context.Context, l *instance.Instance, old *store.Sandbox) {
	if l == nil {
		return
	}
	if err := s.updateSecrets(ctx, l, old); err != nil {
		s.log.Error("cannot restore a sandbox's secrets after a failed update", "sandbox", old.ID, "error", err)
	}
}

// updateSecrets gives the gateway of a running sandbox its secrets, and the guest their
// placeholders and the certificate to trust.
func (s *Service) updateSecrets(ctx context.Context, l *instance.Instance, sb *store.Sandbox) error {
	t, err := s.templateOf(ctx, sb.ProjectID, sb.Template, sb.TemplateDigest)
	if err != nil {
		return err
	}
	release, err := s.machines.Wake(l)
	if err != nil {
		return err
	}
	defer release()
	if err := s.machines.GiveSecrets(l.Gateway, sb); err != nil {
		return err
	}
	return s.machines.IdentifyAgain(ctx, l, sb, t)
}

func (s *Service) apply(sb *store.Sandbox, u bothy.SandboxUpdate) {
	if u.TimeoutSeconds != nil {
		sb.TimeoutSeconds = *u.TimeoutSeconds
		if sb.State == bothy.StateRunning {
			sb.ExpiresAt = expiry(s.clock.Now().UTC(), sb.TimeoutSeconds)
		}
	}
	if u.OnTimeout != nil {
		sb.OnTimeout = *u.OnTimeout
	}
	if u.IdleSeconds != nil {
		sb.IdleSeconds = *u.IdleSeconds
	}
	if u.CheckpointSeconds != nil {
		sb.CheckpointSeconds = *u.CheckpointSeconds
	}
	if u.OnHostLoss != nil {
		sb.OnHostLoss = *u.OnHostLoss
		if sb.OnHostLoss != bothy.HostLossResume {
			sb.StopResuming()
		}
	}
	if u.Metadata != nil {
		sb.Metadata = maps.Clone(u.Metadata)
	}
	if u.Name != nil {
		sb.Name = *u.Name
	}
	if u.Network != nil {
		sb.Network = *u.Network
	}
}
