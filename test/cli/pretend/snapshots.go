package pretend

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
)

// Snapshots is the bothy.SnapshotService of a world. A snapshot remembers
// nothing but its name.
type Snapshots struct{ *World }

func (w Snapshots) add(id, name string, kind bothy.SnapshotKind) *bothy.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &bothy.Snapshot{ID: newID("snp"), SandboxID: id, Name: name, Kind: kind, Template: bothy.DefaultTemplate, SizeBytes: 5 << 20, Durable: bothy.DurableHost, CreatedAt: time.Now().UTC()}
	w.snapshots[s.ID] = s
	return s
}

func (w Snapshots) setState(id string, state bothy.State, snapshot string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandboxes[id].State, w.sandboxes[id].SnapshotID = state, snapshot
}

// Pause marks a sandbox as paused.
func (w Snapshots) Pause(_ context.Context, id string, o bothy.PauseOptions) (*bothy.Snapshot, error) {
	if _, err := w.find(id); err != nil {
		return nil, err
	}
	kind := bothy.SnapshotMemory
	if o.FilesOnly {
		kind = bothy.SnapshotFiles
	}
	s := w.add(id, o.Name, kind)
	w.setState(id, bothy.StatePaused, s.ID)
	return s, nil
}

// Resume marks a sandbox as running.
func (w Snapshots) Resume(ctx context.Context, id string, o bothy.ResumeOptions) (*bothy.Sandbox, error) {
	if s, err := w.Snapshot(ctx, id); err == nil {
		id = s.SandboxID
	}
	sandbox, err := Sandboxes(w).Get(ctx, id)
	if err != nil {
		return nil, err
	}
	how := &bothy.Resumed{SnapshotID: sandbox.SnapshotID, Kind: bothy.SnapshotMemory, At: time.Now().UTC()}
	if s, err := w.Snapshot(ctx, sandbox.SnapshotID); err == nil && s.Kind == bothy.SnapshotFiles {
		how.Kind, how.Detail = s.Kind, "the snapshot contains only files: processes were not saved"
	}
	if o.FilesOnly {
		how.Kind, how.Detail = bothy.SnapshotFiles, "the memory was ignored, as requested"
	}
	w.mu.Lock()
	w.sandboxes[sandbox.ID].Resumed = how
	w.mu.Unlock()
	w.setState(sandbox.ID, bothy.StateRunning, "")
	return Sandboxes(w).Get(ctx, id)
}

// CreateSnapshot remembers a name.
func (w Snapshots) CreateSnapshot(_ context.Context, id string, req bothy.SnapshotCreate) (*bothy.Snapshot, error) {
	if _, err := w.find(id); err != nil {
		return nil, err
	}
	kind := bothy.SnapshotMemory
	if req.FilesOnly {
		kind = bothy.SnapshotFiles
	}
	return w.add(id, req.Name, kind), nil
}

// CompareSnapshots returns a file called as the snapshot is.
func (w Snapshots) CompareSnapshots(ctx context.Context, since, id string, limit int) (*bothy.SnapshotChanges, error) {
	if _, err := w.Snapshot(ctx, since); err != nil {
		return nil, err
	}
	s, err := w.Snapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	c := &bothy.SnapshotChanges{Items: []bothy.FileChange{{Path: "/workspace/" + s.Name, Change: bothy.FileAdded, Type: bothy.FileRegular, Size: 5}, {Path: "/workspace/z", Change: bothy.FileRemoved, Type: bothy.FileDirectory}}}
	if c.Truncated = len(c.Items) > limit; c.Truncated {
		c.Items = c.Items[:limit]
	}
	return c, nil
}

// Snapshot finds one.
func (w Snapshots) Snapshot(_ context.Context, id string) (*bothy.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.snapshots[id]
	if !ok {
		return nil, bothy.Errorf(bothy.CodeSnapshotNotFound, "there is no snapshot %q", id).WithHint("`bothy snapshots` lists them.")
	}
	return s, nil
}

// Snapshots lists them, the newest first.
func (w Snapshots) Snapshots(_ context.Context, f bothy.SnapshotFilter) (bothy.Page[*bothy.Snapshot], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	page := bothy.Page[*bothy.Snapshot]{Items: []*bothy.Snapshot{}}
	for _, s := range w.snapshots {
		if (f.SandboxID == "" || f.SandboxID == s.SandboxID) && (f.Name == "" || f.Name == s.Name) {
			page.Items = append(page.Items, s)
		}
	}
	slices.SortFunc(page.Items, func(a, b *bothy.Snapshot) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return page, nil
}

// DeleteSnapshot forgets one.
func (w Snapshots) DeleteSnapshot(ctx context.Context, id string) error {
	if _, err := w.Snapshot(ctx, id); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sandboxes {
		if s.SnapshotID == id {
			return bothy.Errorf(bothy.CodeSnapshotInUse, "sandbox %s is paused in snapshot %s", s.ID, id).WithHint("Resume or remove the sandbox first.")
		}
	}
	delete(w.snapshots, id)
	return nil
}

// Fork makes sandboxes of the same shape.
func (w Snapshots) Fork(ctx context.Context, id string, req bothy.ForkRequest) ([]*bothy.Sandbox, error) {
	if _, err := w.find(id); err != nil {
		return nil, err
	}
	list := make([]*bothy.Sandbox, req.Count)
	for i := range list {
		name := fmt.Sprintf("%s-%d", req.Name, i+1)
		s, err := Sandboxes(w).Create(ctx, bothy.SandboxCreate{Name: name, Network: req.Network, Metadata: req.Metadata, Env: req.Env, TimeoutSeconds: req.TimeoutSeconds})
		if err != nil {
			return nil, err
		}
		list[i] = s
	}
	return list, nil
}

// Rollback keeps what was, and changes nothing.
func (w Snapshots) Rollback(ctx context.Context, id, snapshotID string) (*bothy.Sandbox, error) {
	if _, err := w.Snapshot(ctx, snapshotID); err != nil {
		return nil, err
	}
	if _, err := w.find(id); err != nil {
		return nil, err
	}
	w.add(id, "before rollback", bothy.SnapshotMemory)
	return Sandboxes(w).Get(ctx, id)
}
