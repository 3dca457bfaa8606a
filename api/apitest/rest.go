package apitest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// Pause implements bothy.SnapshotService.
func (w *World) Pause(ctx context.Context, id string, o bothy.PauseOptions) (*bothy.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	b.State = bothy.StatePaused
	n := w.snapshot(b, o.Name)
	if o.FilesOnly {
		n.Kind = bothy.SnapshotFiles
	}
	b.SnapshotID = n.ID
	w.event(bothy.EventSandboxPaused, b)
	return n, nil
}

// snapshot adds one. The caller holds w.mu.
func (w *World) snapshot(b *sandbox, name string) *bothy.Snapshot {
	n := &bothy.Snapshot{
		ID: w.id("snap"), SandboxID: b.ID, Name: name, Template: b.Template, Kind: bothy.SnapshotMemory,
		SizeBytes: 1 << 40, CreatedAt: Epoch, Durable: bothy.DurableHost, ProjectID: b.ProjectID,
	}
	w.snapshots = append(w.snapshots, n)
	return n
}

// Resume implements bothy.SnapshotService.
func (w *World) Resume(ctx context.Context, id string, o bothy.ResumeOptions) (*bothy.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.snapshots {
		if n.ID == id {
			id = n.SandboxID
		}
	}
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	b.State = bothy.StateRunning
	b.Resumed = &bothy.Resumed{SnapshotID: b.SnapshotID, Kind: bothy.SnapshotMemory, At: Epoch}
	if o.FilesOnly {
		b.Resumed.Kind = bothy.SnapshotFiles
	}
	w.event(bothy.EventSandboxResumed, b)
	return copyOf(b), nil
}

// CreateSnapshot implements bothy.SnapshotService.
func (w *World) CreateSnapshot(ctx context.Context, id string, req bothy.SnapshotCreate) (*bothy.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	n := w.snapshot(b, req.Name)
	if req.FilesOnly {
		n.Kind = bothy.SnapshotFiles
	}
	return n, nil
}

// Snapshot implements bothy.SnapshotService.
func (w *World) Snapshot(ctx context.Context, id string) (*bothy.Snapshot, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.snapshots {
		if n.ID == id && n.ProjectID == caller.ProjectID {
			return n, nil
		}
	}
	return nil, bothy.Errorf(bothy.CodeSnapshotNotFound, "there is no snapshot %q", id).WithHint("List them.")
}

// Snapshots implements bothy.SnapshotService.
func (w *World) Snapshots(ctx context.Context, f bothy.SnapshotFilter) (p bothy.Page[*bothy.Snapshot], err error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return p, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.snapshots {
		if n.ProjectID == caller.ProjectID && (f.SandboxID == "" || f.SandboxID == n.SandboxID) && (f.Name == "" || f.Name == n.Name) {
			p.Items = append(p.Items, n)
		}
	}
	return p, w.err
}

// CompareSnapshots implements bothy.SnapshotService: only the names can differ.
func (w *World) CompareSnapshots(ctx context.Context, since, id string, limit int) (*bothy.SnapshotChanges, error) {
	old, err := w.Snapshot(ctx, since)
	if err != nil {
		return nil, err
	}
	n, err := w.Snapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	c := &bothy.SnapshotChanges{Items: []bothy.FileChange{}}
	if old.Name != n.Name {
		c.Items = append(c.Items, bothy.FileChange{Path: "/workspace/" + old.Name, Change: bothy.FileRemoved, Type: bothy.FileRegular}, bothy.FileChange{Path: "/workspace/" + n.Name, Change: bothy.FileAdded, Type: bothy.FileRegular, Size: 1})
	}
	if c.Truncated = len(c.Items) > limit; c.Truncated {
		c.Items = c.Items[:limit]
	}
	return c, nil
}

// DeleteSnapshot implements bothy.SnapshotService.
func (w *World) DeleteSnapshot(ctx context.Context, id string) error {
	n, err := w.Snapshot(ctx, id)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.sandboxes[n.SandboxID]; b.State == bothy.StatePaused && b.SnapshotID == id {
		return bothy.Errorf(bothy.CodeSnapshotInUse, "the sandbox %s sleeps in %s", b.ID, id).WithHint("Resume it first.")
	}
	w.snapshots = slices.DeleteFunc(w.snapshots, func(x *bothy.Snapshot) bool { return x.ID == id })
	return nil
}

// Fork implements bothy.SnapshotService.
func (w *World) Fork(ctx context.Context, id string, req bothy.ForkRequest) ([]*bothy.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	var out []*bothy.Sandbox
	for range req.Count {
		c := &sandbox{Sandbox: b.Sandbox, files: map[string]*file{}, processes: map[int]*process{}}
		c.ID, c.Name, c.Metadata = w.id("sbx"), req.Name, req.Metadata
		c.ParentSandboxID, c.ForkedAt = b.ID, &Epoch
		w.sandboxes[c.ID] = c
		w.order = append(w.order, c.ID)
		out = append(out, copyOf(c))
	}
	return out, nil
}

// Rollback implements bothy.SnapshotService.
func (w *World) Rollback(ctx context.Context, id, snapshotID string) (*bothy.Sandbox, error) {
	if _, err := w.Snapshot(ctx, snapshotID); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	b.ParentSnapshotID = snapshotID
	return copyOf(b), nil
}

// Templates implements bothy.TemplateService.
func (w *World) Templates(ctx context.Context) ([]*bothy.Template, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesRead); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*bothy.Template
	for _, t := range w.templates {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *bothy.Template) int { return strings.Compare(a.Name, b.Name) })
	return out, w.err
}

// Template implements bothy.TemplateService.
func (w *World) Template(ctx context.Context, name string) (*bothy.Template, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesRead); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.templates[name]; t != nil {
		return t, nil
	}
	return nil, bothy.Errorf(bothy.CodeTemplateNotFound, "there is no template %q", name).WithHint("There is %s.", bothy.DefaultTemplate)
}

// BuildTemplate implements bothy.TemplateService. The name "bad" fails after
// the first step.
func (w *World) BuildTemplate(ctx context.Context, req bothy.TemplateBuild, log func(bothy.BuildEvent)) (*bothy.Template, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite); err != nil {
		return nil, err
	}
	if err := w.failing(); err != nil {
		return nil, err
	}
	log(bothy.BuildEvent{Step: "fetch", Percent: 10})
	if req.Name == "bad" {
		return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "the image holds no layers").WithHint("Give one that does.")
	}
	t := &bothy.Template{Version: bothy.ManifestVersion, Name: req.Name, Digest: "sha256:01", CreatedAt: Epoch, Source: req.Image}
	w.mu.Lock()
	w.templates[req.Name] = t
	w.mu.Unlock()
	log(bothy.BuildEvent{Step: "done", Template: t})
	return t, nil
}

// MadeTemplate adds a template, for a Builder.
func (w *World) MadeTemplate(name string) *bothy.Template {
	t := &bothy.Template{Version: bothy.ManifestVersion, Name: name, Digest: "sha256:02", CreatedAt: Epoch, Source: "Dockerfile"}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.templates[name] = t
	return t
}

// CreateTemplate implements bothy.TemplateCapturer.
func (w *World) CreateTemplate(ctx context.Context, id string, req bothy.TemplateCapture) (*bothy.Template, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite); err != nil {
		return nil, err
	}
	if _, err := w.Get(ctx, id); err != nil {
		return nil, err
	}
	t := &bothy.Template{Version: bothy.ManifestVersion, Name: req.Name, Digest: "sha256:02", CreatedAt: Epoch, Source: id, Description: req.Description}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.templates[req.Name] = t
	return t, nil
}

// TagTemplate implements bothy.TemplateService.
func (w *World) TagTemplate(ctx context.Context, name string, tags []string) ([]*bothy.Template, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite); err != nil {
		return nil, err
	}
	t, err := w.Template(ctx, name)
	if err != nil {
		return nil, err
	}
	var tagged []*bothy.Template
	for _, tag := range tags {
		c := *t
		c.Tag = tag
		tagged = append(tagged, &c)
	}
	return tagged, nil
}

// PushTemplate implements bothy.TemplateService.
func (w *World) PushTemplate(ctx context.Context, name string, req bothy.TemplatePush) (*bothy.PushedTemplate, error) {
	t, err := w.Template(ctx, name)
	if err != nil {
		return nil, err
	}
	return &bothy.PushedTemplate{Reference: req.Reference + "@" + t.Digest, Digest: t.Digest, SizeBytes: t.SizeBytes}, nil
}

// TemplateSBOM pretends to list packages.
func (w *World) TemplateSBOM(ctx context.Context, name, format string) (json.RawMessage, error) {
	if _, err := w.Template(ctx, name); err != nil {
		return nil, err
	}
	return json.RawMessage(`{"format":"` + format + `"}`), nil
}

// TemplateProvenance pretends to know how a template was made.
func (w *World) TemplateProvenance(ctx context.Context, name string) (json.RawMessage, error) {
	t, err := w.Template(ctx, name)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(`{"subject":[{"name":"` + t.Name + `"}]}`), nil
}

// RemoveTemplate implements bothy.TemplateService.
func (w *World) RemoveTemplate(ctx context.Context, name string) error {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite); err != nil {
		return err
	}
	if _, err := w.Template(ctx, name); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.templates, name)
	return nil
}

// LastEvent implements bothy.EventService.
func (w *World) LastEvent(ctx context.Context) (id int64, err error) {
	if _, err := bothy.Require(ctx, bothy.ScopeSandboxesRead); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		id = max(id, e.ID)
	}
	return id, w.err
}

// Events implements bothy.EventService.
func (w *World) Events(ctx context.Context, f bothy.EventFilter, fn func(bothy.Event) error) error {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return err
	}
	for {
		w.mu.Lock()
		all, changed, err := slices.Clone(w.events), w.changed, w.err
		w.mu.Unlock()
		if err != nil {
			return err
		}
		for _, e := range all {
			if e.ID <= f.Since || e.ProjectID != caller.ProjectID || (f.SandboxID != "" && e.SandboxID != f.SandboxID) {
				continue
			}
			if err := fn(e); err != nil {
				return err
			}
			f.Since = e.ID
		}
		if !f.Follow {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// NetworkLog implements bothy.NetworkService: two decisions, a minute apart.
func (w *World) NetworkLog(ctx context.Context, id string, since time.Time, follow bool, fn func(bothy.NetworkDecision) error) error {
	w.mu.Lock()
	_, err := w.get(ctx, id, bothy.ScopeSandboxesRead)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	for _, d := range []bothy.NetworkDecision{
		{Time: Epoch, Protocol: "dns", Name: "a.example.com", Allowed: true, Rule: "domain:*.example.com"},
		{Time: Epoch.Add(time.Minute), Protocol: "tcp", Address: "192.0.2.1", Port: 25, Reason: "no rule allows it"},
	} {
		if d.Time.Before(since) {
			continue
		}
		if err := fn(d); err != nil {
			return err
		}
	}
	if follow {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}
