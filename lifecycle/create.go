package lifecycle

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
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
	c := &launch{secrets: req.Secrets, budget: req.Budget}
	defer c.held.Run()
	if req.SnapshotID != "" {
		err = s.planFromSnapshot(ctx, c, req)
	} else {
		err = s.planFromTemplate(ctx, c, caller.ProjectID, req)
	}
	if err != nil {
		return nil, err
	}
	if err := s.launch(ctx, c); err != nil {
		return nil, err
	}
	return c.sb.Public(), nil
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
	sb, err := s.newSandbox(ctx, caller.ProjectID, req)
	if err != nil {
		return err
	}
	if err := s.machines.SealSecrets(sb, req.Secrets); err != nil {
		return err
	}
	if err := s.admission.Check(ctx, &sb.Sandbox); err != nil {
		return err
	}
	_, err = s.o.Templates.LookupFor(ctx, sb.ProjectID, sb.Template)
	return err
}

// planFromTemplate plans a sandbox of a template, which may have memory.
func (s *Service) planFromTemplate(ctx context.Context, c *launch, project string, req bothy.SandboxCreate) (err error) {
	if c.sb, err = s.newSandbox(ctx, project, req); err != nil {
		return err
	}
	c.ready = true
	c.find = func() (err error) {
		if c.t, err = s.o.Templates.LookupFor(ctx, project, c.sb.Template); err != nil {
			return err
		}
		if m := c.t.Memory; m != nil && (req.Engine == "" || req.Engine == m.Engine) {
			return s.planFromMemory(ctx, c, req, c.t)
		}
		c.sb.TemplateDigest = c.t.Digest
		return nil
	}
	return nil
}

// planFromMemory plans a sandbox of a template with memory, whose size it has.
func (s *Service) planFromMemory(ctx context.Context, c *launch, req bothy.SandboxCreate, t *store.Template) error {
	sb, from := c.sb, t.Memory
	if err := s.openFor(ctx, c, from.SnapshotID); err != nil {
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the memory snapshot of the template %s is missing or damaged", t.Ref()).
			WithHint("Create it again: bothy template create --memory --from SANDBOX %s.", t.Ref()).Because(err)
	}
	if req.Size != "" || req.MemoryMB != 0 && req.MemoryMB != from.MemoryMB || req.DiskMB != 0 && req.DiskMB != from.DiskMB {
		return invalid("the processes of template %s need %d MB of memory and %d MB of disk", t.Ref(), from.MemoryMB, from.DiskMB).
			WithHint("Omit size, memory_mb and disk_mb, or create a template without memory.")
	}
	m := c.from.m
	sb.CPU, sb.MemoryMB, sb.DiskMB = cmp.Or(req.CPU, from.CPU), from.MemoryMB, from.DiskMB
	sb.Template, sb.TemplateDigest, sb.Engine = t.Ref(), m.Sandbox.TemplateDigest, m.Engine
	if err := s.allowSize(ctx, sb); err != nil {
		return err
	}
	s.setProcessor(sb, m)
	c.memory = from.SnapshotID
	var err error
	c.t, err = s.templateOf(ctx, sb.ProjectID, m.Sandbox.Template, m.Sandbox.TemplateDigest)
	return err
}

// planFromSnapshot plans a sandbox from a snapshot, whose size it has.
func (s *Service) planFromSnapshot(ctx context.Context, c *launch, req bothy.SandboxCreate) error {
	n, err := s.findSnapshot(ctx, req.SnapshotID, bothy.ScopeSandboxesWrite)
	if err != nil {
		return err
	}
	if err := s.openFor(ctx, c, n.ID); err != nil {
		return err
	}
	m, o := c.from.m, c.from.m.Sandbox
	if req.Template != "" && req.Template != o.Template {
		return invalid("snapshot %s is of template %q, not %q", n.ID, o.Template, req.Template).
			WithHint("Omit template when snapshot_id is given.")
	}
	// On another engine only the files are restored.
	if req.Engine == "" {
		req.Engine = m.Engine
	}
	req.RequireAcceleration = req.RequireAcceleration || o.Accelerated && req.Engine == m.Engine
	if (req.MemoryMB != 0 && req.MemoryMB != o.MemoryMB) || (req.DiskMB != 0 && req.DiskMB != o.DiskMB) {
		return invalid("a sandbox from snapshot %s has %d MB of memory and %d MB of disk", n.ID, o.MemoryMB, o.DiskMB).
			WithHint("Omit memory_mb and disk_mb when snapshot_id is given.")
	}
	req.Template, req.Size, req.MemoryMB, req.DiskMB = o.Template, "", o.MemoryMB, o.DiskMB
	s.inherit(&req, o)
	if err := s.checkHostLabels(req.HostLabels); err != nil {
		return err
	}
	sb, err := s.newSandbox(ctx, n.ProjectID, req)
	if err != nil {
		return err
	}
	sb.TemplateDigest = o.TemplateDigest
	sb.ParentSnapshotID, sb.HeadSnapshotID = n.ID, n.ID
	sb.ParentSandboxID, sb.ForkedAt = n.SandboxID, &n.CreatedAt
	c.sb, c.data = sb, parentsOf(sb)
	return joinBudget(sb, req.Budget, s.rootOf(ctx, n))
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
