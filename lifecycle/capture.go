package lifecycle

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// CreateTemplate creates a template from a sandbox; see bothy.TemplateCapturer.
func (s *Service) CreateTemplate(ctx context.Context, id string, req bothy.TemplateCapture) (*bothy.Template, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite); err != nil {
		return nil, err
	}
	if !bothy.ValidTemplateName(req.Name) {
		_, err := bothy.ParseTemplateRef(req.Name)
		if err == nil {
			err = invalid("%q names an image, not a template", req.Name).WithHint("Omit the digest.")
		}
		return nil, err
	}
	if s.o.TemplateMaker == nil {
		return nil, bothy.Errorf(bothy.CodeUnsupported, "this server cannot create templates from sandboxes")
	}
	sb, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	base, err := s.o.Templates.LookupFor(ctx, sb.ProjectID, sb.TemplateDigest)
	if err != nil {
		return nil, err
	}
	t := &store.Template{Template: bothy.Template{
		Version: bothy.ManifestVersion, Name: req.Name, Description: req.Description, CreatedAt: s.clock.Now().UTC(),
		Env: base.Env, Cwd: base.Cwd, User: base.User, Image: base.Image, Entrypoint: base.Entrypoint,
		Packages: base.Packages, Languages: base.Languages, Warm: base.Warm,
		Source: fmt.Sprintf("sandbox %s of %s@%s", sb.ID, base.Name, base.Digest),
	}}
	t.Origin = &bothy.TemplateOrigin{
		Kind: bothy.FromSandbox, ID: sb.ID, Parameters: map[string]any{"sandbox": sb.ID, "memory": req.Memory},
		Materials: []bothy.Material{{Name: base.Ref(), Digest: base.Digest}}, StartedAt: &t.CreatedAt,
	}
	if req.Memory {
		if base.Start != nil && base.Memory == nil { // the last step of a template build
			t.Start, t.Source, t.Origin = base.Start, base.Source, base.Origin
		}
		return &t.Template, s.captureMemory(ctx, sb, t, base)
	}
	return &t.Template, s.captureFiles(ctx, sb, t, base)
}

// captureFiles creates a template from the files of a running or paused sandbox.
func (s *Service) captureFiles(ctx context.Context, sb *store.Sandbox, t, base *store.Template) error {
	if sb.State == bothy.StatePaused {
		dir, _, release, err := s.openSnapshot(ctx, sb.SnapshotID)
		if err != nil {
			return err
		}
		defer release()
		return s.o.TemplateMaker.Capture(ctx, t, base, filepath.Join(dir, snapshot.FilesTar))
	}
	draft, err := s.o.Blobs.Create(ctx, instance.NewID("snp"))
	if err != nil {
		return snapshotError(err)
	}
	defer draft.Discard()
	changes := filepath.Join(draft.Dir(), snapshot.FilesTar)
	if err := s.SaveFiles(ctx, sb.ID, changes); err != nil {
		return snapshotError(err)
	}
	return s.o.TemplateMaker.Capture(ctx, t, base, changes)
}

// captureMemory creates a template from a live snapshot, which is kept as long as the template.
func (s *Service) captureMemory(ctx context.Context, sb *store.Sandbox, t, base *store.Template) error {
	if sb.State == bothy.StatePaused {
		return invalid("sandbox %s is paused, and its memory can only be captured while it runs", sb.ID).
			WithHint("Resume it first, or omit memory.")
	}
	n, err := s.CreateSnapshot(ctx, sb.ID, bothy.SnapshotCreate{Name: "template " + t.Name})
	if err != nil {
		return err
	}
	drop := func() {
		if err := s.DeleteSnapshot(context.WithoutCancel(ctx), n.ID); err != nil {
			s.log.Warn("cannot delete the snapshot of a template that was not created", "snapshot", n.ID, "error", err)
		}
	}
	if n.Kind != bothy.SnapshotMemory {
		drop()
		return bothy.Errorf(bothy.CodeUnsupported, "the memory of sandbox %s cannot be saved: %s", sb.ID, n.Detail).WithHint("Omit memory.")
	}
	dir, m, release, err := s.openSnapshot(ctx, n.ID)
	if err != nil {
		drop()
		return err
	}
	defer release()
	t.Memory = &bothy.TemplateMemory{
		SnapshotID: n.ID, BaseDigest: m.Sandbox.TemplateDigest, SizeBytes: n.SizeBytes, Engine: m.Engine, CPU: sb.CPU, MemoryMB: m.Sandbox.MemoryMB, DiskMB: m.Sandbox.DiskMB,
	}
	if err := s.tryMemory(ctx, t, base); err != nil {
		drop()
		return err
	}
	if err := s.o.TemplateMaker.Capture(ctx, t, base, filepath.Join(dir, snapshot.FilesTar)); err != nil {
		drop()
		return err
	}
	return nil
}

// tryMemory restores the memory of a new template once as a test. If the host lacks the memory
// for that, the first sandbox created from it is the test.
func (s *Service) tryMemory(ctx context.Context, t, files *store.Template) error {
	if free := s.admission.FreeMemoryMB(); free < t.Memory.MemoryMB+s.o.Pool.MinFreeMemoryMB {
		s.log.Warn("not enough free memory to test the memory snapshot of a template", "template", t.Name, "free_mb", free)
		return nil
	}
	err := s.warm.Try(ctx, t.Memory, files)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return bothy.Errorf(bothy.CodeTemplateInvalid, "the template %s was not created: restoring its memory failed", t.Name).
		WithHint("Try again; if it fails again, omit memory. The sandbox is unchanged.").Because(err)
}
