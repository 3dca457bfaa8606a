package depot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// spoiledFor is how long a tree found damaged on this host is not read again.
const spoiledFor = time.Hour

// withTree calls do with a folder that has the files of a tree on this host, once they are verified.
// If this host lacks any of them, it is fs.ErrNotExist.
func (d *Depot) withTree(ctx context.Context, t *store.Tree, do func(dir string) error) error {
	parent := filepath.Join(d.Home, "objects") // hard links need the same disk
	if t.Kind == store.TreeTemplates {
		parent = filepath.Join(d.Folder, ".build")
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(parent, uploadPrefix+"*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := d.linkIntact(ctx, t, dir); err != nil {
		return err
	}
	return do(dir)
}

// errSpoiled means that a tree's files are damaged on this host.
var errSpoiled = errors.New("its files on this host are damaged")

// linkIntact is linkTree and checkTree. A damaged tree is not read again for a while.
func (d *Depot) linkIntact(ctx context.Context, t *store.Tree, dir string) error {
	key := t.Kind + "/" + t.Name
	if at, ok := d.spoiled.Load(key); ok && time.Since(at.(time.Time)) < spoiledFor {
		return fmt.Errorf("%s: %w", key, errSpoiled)
	}
	err := d.linkTree(t, dir)
	if err == nil {
		err = checkTree(ctx, t, dir)
	}
	if code := bothy.ErrorCode(err); code != bothy.CodeSnapshotDamaged && code != bothy.CodeTemplateInvalid {
		d.spoiled.Delete(key)
		return err
	}
	d.spoiled.Store(key, time.Now())
	d.Log.Error("files on this host are damaged, and are not uploaded to the object storage", "kind", t.Kind, "name", calledBy(t), "error", err, "do", remedies[t.Kind])
	return fmt.Errorf("%s: %w: %w", key, errSpoiled, err)
}

// checkTree compares the files of a tree in a folder with the checksums in its record.
func checkTree(ctx context.Context, t *store.Tree, dir string) error {
	switch t.Kind {
	case store.TreeTemplates:
		return checkFile(ctx, dir, imageFile, t.Name)
	case store.TreeEngines:
		b := &builds.Build{}
		if err := json.Unmarshal(t.Record, b); err != nil {
			return err
		}
		for _, f := range b.Files {
			if err := checkFile(ctx, dir, f.Name, f.SHA256); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

func checkFile(ctx context.Context, dir, name, want string) error {
	got, err := builds.Digest(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if got != want {
		return bothy.Errorf(bothy.CodeSnapshotDamaged, "the checksum of %s is wrong", name)
	}
	return ctx.Err()
}

// VerifySnapshot verifies the files of a snapshot on this host.
func VerifySnapshot(ctx context.Context, _, dir string) error {
	m, err := snapshot.Read(dir)
	if err != nil {
		return err
	}
	return snapshot.Verify(ctx, dir, m, false)
}

// remedies say what to do if the files of a kind of tree are damaged.
var remedies = map[string]string{
	store.TreeTemplates: "build the template again with bothy template build NAME --force, or capture or import it again",
	store.TreeEngines:   "run the version of Bothy that has this build once on another host, which then has a copy",
}

// calledBy returns what users call a tree: for an image also the template, as far as it is known.
func calledBy(t *store.Tree) string {
	var m store.Template
	if t.Kind == store.TreeTemplates && json.Unmarshal(t.Record, &m) == nil && m.Name != "" {
		return m.Ref() + " (" + t.Name[:min(12, len(t.Name))] + ")"
	}
	return t.Name
}
