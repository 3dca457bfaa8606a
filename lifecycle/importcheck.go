package lifecycle

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"unicode"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/admission"
	"github.com/bothy-dev/bothy/snapshot"
)

// checkImported validates an imported manifest like a request to create such a sandbox, and
// checks that its parts are no larger than that sandbox could produce. What a request with
// snapshot_id can still change is checked at that request.
func (s *Service) checkImported(ctx context.Context, m *snapshot.Manifest, unpacked int64) error {
	if err := s.checkOrigin(m); err != nil {
		return refusedManifest(err)
	}
	plan, err := s.admission.Plan(ctx, m.ProjectID)
	if err != nil {
		return err
	}
	o := m.Sandbox
	if err := admission.CheckSize(plan, "memory_mb", float64(o.MemoryMB), float64(plan.MemoryMB)); err != nil {
		return err
	}
	if err := admission.CheckSize(plan, "disk_mb", float64(o.DiskMB), float64(plan.DiskMB)); err != nil {
		return err
	}
	if most := mostUnpacked(o); unpacked > most {
		return invalid("the archive unpacks to %d MB, but a sandbox with %d MB of memory and %d MB of disk cannot have more than %d",
			unpacked>>20, o.MemoryMB, o.DiskMB, most>>20).WithHint("Export the snapshot again.")
	}
	return nil
}

// mostUnpacked is the maximum size of a snapshot's parts: the files as a tar, the disk in the
// engine's format, the memory, and their descriptions.
func mostUnpacked(o snapshot.Origin) int64 {
	tar := 2*o.DiskMB + o.MemoryMB + 256 // the limit that engines enforce
	return int64(tar+2*o.MemoryMB+o.DiskMB+512) << 20
}

func (s *Service) checkOrigin(m *snapshot.Manifest) error {
	o := m.Sandbox
	for what, text := range map[string]string{
		"engine_build": m.EngineBuild, "kernel": m.Kernel, "guest_key": m.GuestKey, "template": o.Template,
	} {
		if len(text) > maxName*2 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return invalid("%s is longer than %d bytes or contains control characters", what, maxName*2)
		}
	}
	_, bad := bothy.ParseTemplateRef(o.Template)
	switch {
	case !s.engines.Known(m.Engine):
		return invalid("this server has no engine %q", m.Engine)
	case bad != nil:
		return invalid("template is %q, which is not a valid name", o.Template)
	case !isDigest(o.TemplateDigest):
		return invalid("template_digest is %q, not sha256: and 64 hexadecimal digits", o.TemplateDigest)
	}
	if err := checkName(m.Name); err != nil {
		return err
	}
	return s.check(&bothy.Sandbox{
		Name: o.Name, CPU: o.CPU, MemoryMB: o.MemoryMB, DiskMB: o.DiskMB, Network: o.Network, TimeoutSeconds: o.TimeoutSeconds,
		OnTimeout: o.OnTimeout, IdleSeconds: o.IdleSeconds, OnHostLoss: o.OnHostLoss, CheckpointSeconds: o.CheckpointSeconds, Env: o.Env, Metadata: o.Metadata,
	})
}

func isDigest(text string) bool {
	digits, ok := strings.CutPrefix(text, "sha256:")
	b, err := hex.DecodeString(digits)
	return ok && err == nil && len(b) == 32 && strings.ToLower(digits) == digits
}

func refusedManifest(err error) error {
	var e *bothy.Error
	if !errors.As(err, &e) {
		return err
	}
	return bothy.Errorf(bothy.CodeInvalid, "the archive's manifest cannot be accepted: %s", e.Detail).
		WithHint("Import what `bothy snapshot export` wrote, unchanged.").Because(err)
}
