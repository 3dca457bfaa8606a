package depot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

const (
	digestPrefix = "sha256:"
	// storeEvery is how often trees to upload are looked for.
	storeEvery = 10 * time.Second
	// othersAfter is the age at which other hosts upload a tree that its own host has not.
	othersAfter = 5 * time.Minute
	// collectObjects is how often unneeded trees are looked for.
	collectObjects = 10 * time.Minute
	// uploadPrefix begins the names of folders that are being uploaded.
	uploadPrefix = ".fetch-"
)

// treeKinds are the kinds of files that hosts share.
var treeKinds = []string{store.TreeTemplates, store.TreeEngines}

// oldGoldens is the kind of the golden snapshots that hosts of earlier versions share. This version
// only deletes them, like all that nothing needs.
const oldGoldens = "goldens"

// treeFile is a file of a tree.
type treeFile struct {
	name string
	size int64
}

// fetch writes the files of a tree into a folder: from the object storage or, if that has lost or
// damaged them or cannot be reached, from another host. Then a host that has them uploads them again.
// The caller verifies their checksums.
func (d *Depot) fetch(ctx context.Context, t *store.Tree, dir string, files []treeFile) error {
	damaged := false
	if d.Bucket != nil && t.StoredAt != nil && !t.Deleting() {
		err := d.Bucket.GetTree(ctx, t.Kind, t.Name, dir, d.MinFree)
		if err == nil {
			err = whole(dir, files)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		damaged = bothy.ErrorCode(err) == bothy.CodeSnapshotDamaged
		if errors.Is(err, fs.ErrNotExist) && !damaged { // as after a change of storage
			err = errors.Join(err, d.Records.SetTreeStored(ctx, t.Kind, t.Name, nil))
		}
		d.Log.Warn("cannot fetch a tree from the object storage; asking the other hosts", "kind", t.Kind, "name", t.Name, "error", err)
	}
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f.name)), 0o711); err != nil {
			return err
		}
		if err := d.Trees.Fetch(ctx, t.Host, t.Kind, t.Name, f.name, filepath.Join(dir, f.name), f.size); err != nil {
			return err
		}
	}
	if damaged { // until another host has given a copy, the stored tree may be the only one
		return d.Records.SetTreeStored(ctx, t.Kind, t.Name, nil)
	}
	return nil
}

// objectName names a tree in the object storage. That of an old golden snapshot ends with the
// beginning of its manifest's checksum.
func objectName(t *store.Tree) string {
	var r struct {
		Manifest string `json:"manifest_sha256"`
	}
	if t.Kind != oldGoldens || json.Unmarshal(t.Record, &r) != nil {
		return t.Name
	}
	return t.Name + "-" + r.Manifest[:min(16, len(r.Manifest))]
}

func whole(dir string, files []treeFile) error {
	for _, f := range files {
		info, err := os.Lstat(filepath.Join(dir, f.name))
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() != f.size {
			return fmt.Errorf("%s has %d bytes in the object storage, not %d", f.name, info.Size(), f.size)
		}
	}
	return nil
}

// Run uploads shared trees to the object storage until ctx ends, and on the host on duty
// deletes those that nothing needs.
func (d *Depot) Run(ctx context.Context) {
	d.removeUploads()
	if d.Bucket == nil {
		return
	}
	var collecting sync.WaitGroup
	defer collecting.Wait()
	collecting.Go(func() { d.runCollect(ctx) })
	every := time.NewTicker(storeEvery)
	defer every.Stop()
	for {
		if err := d.upload(ctx); err != nil && ctx.Err() == nil {
			d.Log.Warn("cannot upload all templates and engine builds to the object storage; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// removeUploads deletes the upload folders that a killed server left behind.
func (d *Depot) removeUploads() {
	left, _ := filepath.Glob(filepath.Join(d.Home, "objects", uploadPrefix+"*"))
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			d.Log.Warn("cannot delete the folder of an unfinished upload", "folder", dir, "error", err)
		}
	}
}

// runCollect deletes unneeded trees from the object storage while this host is on duty.
func (d *Depot) runCollect(ctx context.Context) {
	every := time.NewTicker(storeEvery)
	defer every.Stop()
	collected := time.Now()
	for {
		if time.Since(collected) > collectObjects && d.OnDuty() {
			collected = time.Now()
			if err := d.collect(ctx, d.Grace); err != nil && ctx.Err() == nil {
				d.Log.Warn("cannot delete all unneeded templates and engine builds from the object storage", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// upload uploads the trees that the object storage lacks and that this host should upload.
func (d *Depot) upload(ctx context.Context) error {
	if d.Bucket.Usable() != nil {
		return nil // watchBucket logs it
	}
	var errs []error
	for _, kind := range treeKinds {
		all, err := d.Records.Trees(ctx, kind)
		if err != nil {
			return err
		}
		for _, t := range all {
			late := time.Since(t.At) > othersAfter
			if t.StoredAt == nil && t.UnneededAt == nil && (late || t.Host == d.Host) {
				if err := d.uploadMissing(ctx, t.Kind, t.Name); !errors.Is(err, errSpoiled) { // which is logged
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// StoreNeeds uploads what a snapshot is restored with, unless it is in the object storage: the image
// of its template, and the engine build that wrote its memory. So any host can restore it.
func (d *Depot) StoreNeeds(ctx context.Context, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, snapshot.ManifestName))
	if err != nil {
		return err
	}
	m, err := snapshot.Parse(text)
	if err != nil {
		return nil // no host can restore it
	}
	err = d.uploadMissing(ctx, store.TreeTemplates, strings.TrimPrefix(m.Sandbox.TemplateDigest, digestPrefix))
	if m.Kind == bothy.SnapshotMemory {
		err = errors.Join(err, d.PublishBuild(ctx, m.EngineBuild), d.uploadMissing(ctx, store.TreeEngines, m.EngineBuild))
	}
	return err
}

// uploadMissing uploads a tree that the object storage lacks, if this host has it.
func (d *Depot) uploadMissing(ctx context.Context, kind, name string) error {
	unlock, err := d.storing.LockIn(ctx, kind+"/"+name)
	if err != nil {
		return err
	}
	defer unlock()
	t, err := d.Records.Tree(ctx, kind, name)
	switch {
	case bothy.ErrorCode(err) == bothy.CodeNotFound:
		return nil
	case err != nil:
		return err
	case t.Deleting():
		return fmt.Errorf("%s/%s is being deleted from the object storage, and is uploaded again after that", kind, name)
	case t.UnneededAt != nil:
		if err := d.Records.SetTreeNeeded(ctx, kind, name, true); err != nil {
			return err
		}
	}
	if t.StoredAt != nil {
		return nil
	}
	return d.uploadTree(ctx, t)
}

func (d *Depot) uploadTree(ctx context.Context, t *store.Tree) error {
	begun := time.Now()
	err := d.withTree(ctx, t, func(dir string) error { return d.Bucket.PutTree(ctx, t.Kind, t.Name, dir) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another host has it
	}
	if err != nil {
		return fmt.Errorf("store %s/%s: %w", t.Kind, t.Name, err)
	}
	now := time.Now()
	if err := d.Records.SetTreeStored(ctx, t.Kind, t.Name, &now); err != nil {
		return err
	}
	d.Log.Info("uploaded to the object storage", "kind", t.Kind, "name", t.Name, "mb", t.Bytes>>20, "ms", time.Since(begun).Milliseconds())
	return nil
}

// collect deletes from the object storage what nothing has needed for the grace period.
// The records decide; nothing is deleted because a listing lacks it, or while the records may
// be incomplete.
func (d *Depot) collect(ctx context.Context, grace time.Duration) error {
	if d.Doubtful() {
		return nil
	}
	needed, err := d.neededTrees(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, kind := range append([]string{oldGoldens}, treeKinds...) {
		all, err := d.Records.Trees(ctx, kind)
		if err != nil {
			return err
		}
		for _, t := range all {
			gone, err := collectTree(ctx, d.Records, &t, needed, grace, d.Bucket.RemoveTree)
			if gone {
				d.Log.Info("deleted from the object storage", "kind", t.Kind, "name", t.Name)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// collectTree records whether a tree is needed, and deletes it if it has not been for the grace
// period. It also resumes an unfinished deletion.
func collectTree(ctx context.Context, shared store.Shared, t *store.Tree, needed func(context.Context, *store.Tree) (bool, error), grace time.Duration,
	remove func(ctx context.Context, kind, name string) error) (gone bool, err error) {
	if !t.Deleting() {
		need, err := needed(ctx, t)
		if err != nil {
			return false, err
		}
		if need != (t.UnneededAt == nil) {
			if err := shared.SetTreeNeeded(ctx, t.Kind, t.Name, need); err != nil {
				return false, err
			}
		}
		if need || t.StoredAt == nil {
			return false, nil
		}
	}
	deleting, err := shared.MarkTreeDeleting(ctx, t.Kind, t.Name, time.Now().Add(-grace))
	if err != nil || !deleting {
		return false, err
	}
	if err := remove(ctx, t.Kind, objectName(t)); err != nil {
		return false, err
	}
	return true, shared.SetTreeStored(ctx, t.Kind, t.Name, nil)
}

// neededTrees returns a function that reports whether a tree is needed: an image by a name, a
// sandbox or a snapshot; a build by a snapshot. Hosts that have a build also keep it by
// announcing it regularly.
func (d *Depot) neededTrees(ctx context.Context) (func(context.Context, *store.Tree) (bool, error), error) {
	names, _, err := d.Records.TemplateNames(ctx, 0)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, n := range names {
		named[n.Digest] = true
	}
	byBuild, err := d.NeededBuilds(ctx)
	if err != nil {
		return nil, err
	}
	inUse := sync.OnceValues(func() (func(digest string) bool, error) { return d.imagesInUse(ctx) })
	return func(_ context.Context, t *store.Tree) (bool, error) {
		switch t.Kind {
		case store.TreeTemplates:
			if named[digestPrefix+t.Name] {
				return true, nil
			}
			if t.StoredAt == nil && t.UnneededAt != nil {
				return false, nil // already deleted
			}
			used, err := inUse()
			if err != nil {
				return true, err
			}
			return used(digestPrefix + t.Name), nil
		case store.TreeEngines:
			return byBuild[t.Name] > 0, nil
		case oldGoldens:
			return false, nil // kept only while hosts of earlier versions announce it
		}
		return true, nil
	}, nil
}

// imagesInUse returns a function that reports whether a sandbox that has not ended, or a
// snapshot, uses an image. For a snapshot whose manifest is on another host, its sandbox's
// image counts. If that is unknown as well, every image counts as in use.
func (d *Depot) imagesInUse(ctx context.Context) (func(digest string) bool, error) {
	used := map[string]bool{}
	open, err := d.Store.SandboxesInState(ctx, store.Unended...)
	if err != nil {
		return nil, err
	}
	for _, sb := range open {
		used[sb.TemplateDigest] = true
	}
	all, err := d.Store.AllSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	unknown := false
	for _, n := range all {
		o, err := d.origins.of(ctx, d.Blobs, n.ID)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil && o.image != "" {
			used[o.image] = true
			continue
		}
		if named, err := d.Named(ctx, n.ID); err != nil {
			return nil, err
		} else if !named {
			continue // just deleted
		}
		sb, err := d.Store.Sandbox(ctx, n.SandboxID)
		if err != nil && bothy.ErrorCode(err) != bothy.CodeSandboxNotFound {
			return nil, err
		}
		if err == nil && sb.TemplateDigest != "" {
			used[sb.TemplateDigest] = true
			continue
		}
		unknown = true
	}
	return func(digest string) bool { return unknown || used[digest] }, nil
}
