package apitest

import (
	"context"
	"io"

	"github.com/bothy-dev/bothy"
)

// ExportSnapshot implements bothy.SnapshotMover: it writes the id and the
// passphrase.
func (w *World) ExportSnapshot(ctx context.Context, id, passphrase string, to io.Writer) error {
	if _, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite); err != nil {
		return err
	}
	if _, err := w.Snapshot(ctx, id); err != nil {
		return err
	}
	_, err := io.WriteString(to, id+" "+passphrase)
	return err
}

// ImportSnapshot implements bothy.SnapshotMover: the archive is the name.
func (w *World) ImportSnapshot(ctx context.Context, name, passphrase string, r io.Reader) (*bothy.Snapshot, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite); err != nil {
		return nil, err
	}
	if w.RefuseImports {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the archive is encrypted").WithHint("Give its passphrase.")
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return nil, bothy.Errorf(bothy.CodeSnapshotDamaged, "the archive is empty").WithHint("Export it again.")
	}
	return &bothy.Snapshot{ID: "snp-imported", Name: name + string(b) + passphrase, Kind: bothy.SnapshotMemory, CreatedAt: Epoch}, nil
}

// ArchiveKey implements bothy.SnapshotMover.
func (w *World) ArchiveKey(ctx context.Context) (*bothy.ArchiveKey, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeSandboxesRead); err != nil {
		return nil, err
	}
	return &bothy.ArchiveKey{Key: "bothy-key-test"}, nil
}

// Logs implements bothy.LogService.
func (w *World) Logs(ctx context.Context, id string, pid int) (*bothy.Logs, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.get(ctx, id, bothy.ScopeSandboxesRead); err != nil {
		return nil, err
	}
	return &bothy.Logs{Items: []bothy.LogEntry{{PID: max(pid, 7), Stream: "stdout", Data: "hello\n"}}}, nil
}

// Limits implements bothy.LimitsService.
func (w *World) Limits(ctx context.Context) (*bothy.PlanLimits, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeSandboxesRead); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	limit := 5
	return &bothy.PlanLimits{Plan: "test", Sandboxes: bothy.InUse{Limit: &limit, Used: len(w.sandboxes)}}, nil
}
