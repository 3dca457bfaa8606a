package template

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template/apart"
	filetree "github.com/bothy-dev/bothy/template/tree"
	"golang.org/x/sys/unix"
)

// Capture makes a template from a base and the changes that a sandbox has made to its files, as
// a tar in the engines' format. It is called t.Name, which may have a tag, and belongs to the
// caller's project. What identifies the machine, such as its host name, is removed.
func (l *Library) Capture(ctx context.Context, t, base *store.Template, changes string) error {
	files, err := Changed(ctx, base.RootFS, changes)
	if err != nil {
		return captureError(t.Name, err)
	}
	if err := FinishTree(files, cmp.Or(t.Env["PATH"], defaultPath)); err != nil {
		return captureError(t.Name, err)
	}
	work := filepath.Join(l.dir, ".build")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return captureError(t.Name, err)
	}
	f, err := os.CreateTemp(work, ".capture-*")
	if err != nil {
		return captureError(t.Name, err)
	}
	image := f.Name()
	defer os.Remove(image)
	err = f.Close()
	if err == nil {
		err = failpoint.Hit("template.capture")
	}
	if err == nil {
		t.Digest, t.SizeBytes, err = l.WriteTree(files, image)
	}
	if err == nil {
		err = os.Chmod(image, 0o644)
	}
	if err != nil {
		return captureError(t.Name, err)
	}
	return captureError(t.Name, l.Adopt(ctx, t, image))
}

// Changed returns the root file system of an image with changes, a tar in the engines' format.
// Neither file may change while the tree is used.
func Changed(ctx context.Context, image, changes string) (*filetree.Tree, error) {
	files, err := filetree.Read(ctx, image)
	if err != nil {
		return nil, err
	}
	if err := files.ApplyFrom(ctx, apart.List, changes, filetree.Overlay, filetree.NewBudget()); err != nil {
		return nil, fmt.Errorf("the sandbox's files: %w", err)
	}
	return files, nil
}

func captureError(name string, err error) error {
	var e *bothy.Error
	switch {
	case err == nil, errors.As(err, &e), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, disk.ErrNoRoom), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return bothy.Errorf(bothy.CodeDiskFull, "the host's disk has no room for the template %s", name).
			WithHint("Delete unneeded templates and snapshots, or ask the operator for disk space.").Because(err)
	}
	return bothy.Errorf(bothy.CodeTemplateInvalid, "the template %s could not be created: %v", name, err).
		WithHint("The sandbox is unchanged. Try again; if it fails again, see the server's log.").Because(err)
}

// HoldsSnapshot returns the template that starts from a snapshot's memory, if any.
func (l *Library) HoldsSnapshot(id string) (*store.Template, error) {
	all, err := l.All()
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if t.Memory != nil && t.Memory.SnapshotID == id {
			return t, nil
		}
	}
	return nil, nil
}

// discard deletes an image of a name, and its memory snapshot.
func (l *Library) discard(ctx context.Context, name, hex string) error {
	t, _ := l.load(name, hex) // a damaged one has none
	if err := os.RemoveAll(filepath.Join(l.home(name), hex)); err != nil {
		return err
	}
	if t != nil && t.Memory != nil && l.opts.Forget != nil {
		l.opts.Forget(ctx, cmp.Or(l.project, bothy.DefaultProject), t.Memory.SnapshotID)
	}
	return nil
}
