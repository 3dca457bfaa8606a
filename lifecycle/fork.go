package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/cleanup"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

const (
	maxForks = 100
	// forksAtOnce limits the copies that start concurrently.
	forksAtOnce = 4
)

// Fork starts copies of a sandbox: all of them, or none.
func (s *Service) Fork(ctx context.Context, id string, req bothy.ForkRequest) ([]*bothy.Sandbox, error) {
	if req.Count == 0 {
		req.Count = 1
	}
	if req.Count < 0 || req.Count > maxForks {
		return nil, invalid("count is %d", req.Count).WithHint("Give a value from 1 to %d.", maxForks)
	}
	origin, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if err := s.o.Meter.Allow(origin); err != nil {
		return nil, err
	}
	if _, err := s.copiesOf(origin, s.clock.Now(), req); err != nil {
		return nil, err
	}
	origin, at, dir, m, release, err := s.captureNow(ctx, id)
	if err != nil {
		return nil, err
	}
	defer release()
	// Copy the state at the capture: its network may have been restricted meanwhile.
	copies, err := s.copiesOf(origin, at, req)
	if err != nil {
		return nil, err
	}
	if err := s.startCopies(ctx, copies, checking(ctx, dir, m)); err != nil {
		return nil, err
	}
	s.ledger.Emit(ctx, bothy.EventSandboxForked, origin, map[string]string{"count": fmt.Sprint(len(copies))})
	shown := make([]*bothy.Sandbox, len(copies))
	for i, c := range copies {
		shown[i] = c.Public()
	}
	return shown, nil
}

// copiesOf returns the new sandboxes that a request asks for, with the state that a sandbox had at
// the given time.
func (s *Service) copiesOf(from *store.Sandbox, at time.Time, req bothy.ForkRequest) ([]*store.Sandbox, error) {
	copies := make([]*store.Sandbox, req.Count)
	for i := range copies {
		c, err := s.copyOf(from, at, req, i)
		if err != nil {
			return nil, err
		}
		copies[i] = c
	}
	if len(copies) > 1 {
		for _, c := range copies {
			c.Forking = copies[0].ID
		}
	}
	return copies, nil
}

// copyOf returns a new sandbox with the settings of another.
func (s *Service) copyOf(from *store.Sandbox, at time.Time, req bothy.ForkRequest, i int) (*store.Sandbox, error) {
	at = at.UTC()
	name := req.Name
	if name != "" && req.Count > 1 {
		name = fmt.Sprintf("%s-%d", name, i+1)
	}
	c := &store.Sandbox{
		Sandbox: bothy.Sandbox{
			ID: instance.NewID("sbx"), Name: name, ProjectID: from.ProjectID,
			Template: from.Template, Engine: from.Engine,
			CPU: from.CPU, MemoryMB: from.MemoryMB, DiskMB: from.DiskMB, Network: from.Network,
			TimeoutSeconds: from.TimeoutSeconds, OnTimeout: from.OnTimeout, IdleSeconds: from.IdleSeconds,
			AutoResume: from.AutoResume, OnHostLoss: from.OnHostLoss, CheckpointSeconds: from.CheckpointSeconds, Env: maps.Clone(from.Env), Metadata: maps.Clone(from.Metadata),
			HostLabels: maps.Clone(from.HostLabels), ParentSnapshotID: from.HeadSnapshotID, ParentSandboxID: from.ID, ForkedAt: &at,
			BudgetRoot: from.BudgetRoot, CreatedAt: s.clock.Now().UTC(),
		},
		TemplateDigest: from.TemplateDigest, RequireAcceleration: from.RequireAcceleration, HeadSnapshotID: from.HeadSnapshotID, EndWhenIdle: from.EndWhenIdle,
	}
	if req.Secrets {
		if err := s.machines.CopySecrets(c, from); err != nil {
			return nil, err
		}
	}
	if req.TimeoutSeconds != nil {
		c.TimeoutSeconds = *req.TimeoutSeconds
	}
	if req.Metadata != nil {
		c.Metadata = maps.Clone(req.Metadata)
	}
	if req.Network != nil {
		c.Network = *req.Network
	}
	if len(req.Env) > 0 && c.Env == nil {
		c.Env = map[string]string{}
	}
	maps.Copy(c.Env, req.Env)
	return c, s.check(&c.Sandbox)
}

// captureNow returns a sandbox and its files at that time: of a live snapshot that release deletes,
// or of the one that a paused sandbox resumes from.
func (s *Service) captureNow(ctx context.Context, id string) (sb *store.Sandbox, at time.Time, dir string, m *snapshot.Manifest, release func(), err error) {
	fail := func(err error) (*store.Sandbox, time.Time, string, *snapshot.Manifest, func(), error) {
		return nil, time.Time{}, "", nil, nil, err
	}
	unlock, err := s.ledger.LockFor(ctx, id)
	if err != nil {
		return fail(err)
	}
	defer unlock()
	sb, err = s.ledger.Sandbox(ctx, id)
	if err != nil {
		return fail(err)
	}
	at = s.clock.Now()
	if sb.State == bothy.StatePaused {
		dir, m, release, err = s.openSnapshot(ctx, sb.SnapshotID)
		return sb, at, dir, m, release, err
	}
	l := s.instance(id)
	if sb.State != bothy.StateRunning || l == nil {
		return fail(s.wrongState(sb))
	}
	draft, err := s.o.Blobs.Create(ctx, instance.NewID("snp"))
	if err != nil {
		return fail(snapshotError(err))
	}
	// If the machine's engine build is missing here, only its files can be copied. If it is
	// there, it is held until all copies are started.
	letGo, why := s.holdBuild(s.engines.Get(sb.Engine), l.Machine.Build())
	if err := s.capture(context.WithoutCancel(ctx), l, draft.Dir(), bothy.SnapshotMemory, why != "", false, true); err != nil {
		letGo()
		draft.Discard()
		return fail(snapshotError(err))
	}
	m = &snapshot.Manifest{
		Engine: sb.Engine, EngineBuild: l.Machine.Build(), GuestKey: sb.GuestKey, Processor: s.processorOf(sb),
		Sandbox: snapshot.Origin{TemplateDigest: sb.TemplateDigest}, Fresh: true,
	}
	return sb, at, draft.Dir(), m, func() { draft.Discard(); letGo() }, nil
}

// startCopies starts all copies or none.
func (s *Service) startCopies(ctx context.Context, copies []*store.Sandbox, from *openedSnapshot) error {
	var undo cleanup.Stack
	defer undo.Run()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	slots := make(chan struct{}, forksAtOnce)
	for _, c := range copies {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			mu.Lock()
			failed := first != nil
			mu.Unlock()
			if failed {
				return
			}
			err := s.launch(ctx, &launch{sb: c, from: from, data: parentsOf(c)})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				undo.Add(func() { s.undoCopy(ctx, c) })
			} else if first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	if first == nil {
		first = s.endFork(ctx, copies[0])
	}
	if first == nil {
		undo.Release()
	}
	return first
}

// parentsOf is what the event of a copy tells of its origin.
func parentsOf(c *store.Sandbox) map[string]string {
	return map[string]string{"parent_snapshot_id": c.ParentSnapshotID, "parent_sandbox_id": c.ParentSandboxID}
}

// endFork records that all copies of a fork are started. Until then they end with the server, see
// cutOffFork.
func (s *Service) endFork(ctx context.Context, first *store.Sandbox) error {
	if err := failpoint.Hit("lifecycle.forked"); err != nil || first.Forking == "" {
		return err
	}
	unlock, err := s.ledger.LockFor(ctx, first.ID)
	if err != nil {
		return err
	}
	defer unlock()
	sb, err := s.ledger.Sandbox(ctx, first.ID)
	if err != nil {
		return err
	}
	sb.Forking = ""
	return s.ledger.Put(context.WithoutCancel(ctx), sb)
}

// cutOffFork reports whether a sandbox is of a fork whose server died before all copies were started.
func (s *Service) cutOffFork(ctx context.Context, sb *store.Sandbox) (bool, error) {
	if sb.Forking == "" || sb.Forking == sb.ID {
		return sb.Forking != "", nil
	}
	first, err := s.ledger.Sandbox(ctx, sb.Forking)
	return err == nil && first.Forking != "", ignoreNotFound(err)
}

func (s *Service) undoCopy(ctx context.Context, c *store.Sandbox) {
	x := bothy.Exit{Reason: bothy.EndError, Detail: "another copy of the same fork could not be started"}
	if err := s.terminate(context.WithoutCancel(ctx), c.ID, x); err != nil {
		s.log.Error("cannot end a copy", "sandbox", c.ID, "error", err)
	}
}
