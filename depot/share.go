package depot

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template"
)

const (
	// compareTime limits how long a start waits for the list of the other hosts' templates.
	compareTime = 10 * time.Second
	// compareEvery is how often the template folder is compared with the other hosts'.
	compareEvery = 30 * time.Second
	// tellAgain is how often a host repeats what it has to the others.
	tellAgain = time.Hour
	// buildTime limits the fetch of an engine build: a sandbox waits for it.
	buildTime = 5 * time.Minute
	// imageFile is the only file in a template's tree.
	imageFile = "rootfs.erofs"
)

// Templates shares templates between hosts.
func (d *Depot) Templates() *template.Shared {
	return &template.Shared{
		Store: d.Records, Host: d.Host, State: filepath.Join(d.Home, "templates.json"), Log: d.Log,
		Fetch: d.fetchImage,
		Elsewhere: func(ctx context.Context, digest string) (bool, error) {
			return d.Elsewhere(ctx, store.TreeTemplates, strings.TrimPrefix(digest, digestPrefix))
		},
		UsedHere: d.imagesHere,
	}
}

// Elsewhere reports whether a tree that this host has can be fetched again: it is in the object
// storage, or the host that published it has it, of which the others ask this as well.
func (d *Depot) Elsewhere(ctx context.Context, kind, name string) (bool, error) {
	t, err := d.Records.Tree(ctx, kind, name)
	if bothy.ErrorCode(err) == bothy.CodeNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if d.Bucket != nil && d.Bucket.Usable() == nil && t.StoredAt != nil && t.UnneededAt == nil {
		return true, nil
	}
	names, err := treeFiles(t)
	if err != nil || len(names) == 0 || d.Trees == nil {
		return false, err
	}
	return d.Trees.Has(ctx, t.Host, kind, name, names[0])
}

// imagesHere are the digests of the images of sandboxes that this host has, and of those that it has
// golden snapshots of.
func (d *Depot) imagesHere(ctx context.Context) (map[string]bool, error) {
	used := map[string]bool{}
	open, err := d.Store.OwnSandboxesInState(ctx, store.Unended...)
	if err != nil {
		return nil, err
	}
	for _, sb := range open {
		used[sb.TemplateDigest] = true
	}
	names, err := d.Golden.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := blob.ReadFile(ctx, d.Golden, name, snapshot.ManifestName)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was given up just now
		}
		if err != nil {
			return nil, err
		}
		if m, err := snapshot.Parse(text); err == nil {
			used[m.Sandbox.TemplateDigest] = true
		}
	}
	return used, nil
}

// fetchImage writes a template's image to a file on this host.
func (d *Depot) fetchImage(ctx context.Context, t *store.Template, to string) error {
	name := strings.TrimPrefix(t.Digest, digestPrefix)
	tree, err := d.Records.Tree(ctx, store.TreeTemplates, name)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".tree-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := d.fetch(ctx, tree, dir, []treeFile{{imageFile, t.SizeBytes}}); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, imageFile), to)
}

// FetchBuild writes the files of an engine build that this host lacks into a folder.
func (d *Depot) FetchBuild(name, dir string) (*builds.Build, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	tree, err := d.Records.Tree(ctx, store.TreeEngines, name)
	if err != nil {
		return nil, err
	}
	b := &builds.Build{}
	if err := json.Unmarshal(tree.Record, b); err != nil {
		return nil, err
	}
	var files []treeFile
	for _, f := range d.Builds.Missing(b) {
		files = append(files, treeFile{f.Name, f.Size})
	}
	if len(files) == 0 {
		return b, nil
	}
	return b, d.fetch(ctx, tree, dir, files)
}

// publishBuilds tells the other hosts about the engine builds on this one. It repeats each
// regularly, since builds that no host announces are deleted from the object storage.
func (d *Depot) publishBuilds(ctx context.Context, told map[string]time.Time) error {
	all, err := builds.List(d.Builds.Dir())
	if err != nil {
		return err
	}
	for _, b := range all {
		if time.Since(told[b.Name]) < tellAgain {
			continue
		}
		if err := d.putBuild(ctx, b); err != nil {
			return err
		}
		told[b.Name] = time.Now()
	}
	return nil
}

// PublishBuild tells the other hosts about an engine build, if it is on this one and they do not know
// it.
func (d *Depot) PublishBuild(ctx context.Context, name string) error {
	if _, err := d.Records.Tree(ctx, store.TreeEngines, name); bothy.ErrorCode(err) != bothy.CodeNotFound {
		return err
	}
	all, err := builds.List(d.Builds.Dir())
	if err != nil {
		return err
	}
	for _, b := range all {
		if b.Name == name {
			return d.putBuild(ctx, b)
		}
	}
	return nil
}

func (d *Depot) putBuild(ctx context.Context, b builds.Build) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return d.Records.PutTree(ctx, store.Tree{Kind: store.TreeEngines, Name: b.Name, Host: d.Host, Bytes: b.Size(), At: time.Now(), Record: text})
}

// OpenFile opens a file for another host.
func (d *Depot) OpenFile(kind, name, file string) (*os.File, error) {
	switch {
	case kind == store.TreeTemplates && file == imageFile:
		return d.Library.OpenShared(digestPrefix + name)
	case kind == store.TreeEngines:
		return d.Builds.OpenFile(name, file)
	}
	return nil, fs.ErrNotExist
}

// linkTree hard-links all files of a tree on this host into a folder. It returns fs.ErrNotExist
// if this host lacks any of them.
func (d *Depot) linkTree(t *store.Tree, dir string) error {
	names, err := treeFiles(t)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fs.ErrNotExist
	}
	for _, name := range names {
		f, err := d.OpenFile(t.Kind, t.Name, name)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o711); err != nil {
			f.Close()
			return err
		}
		err = os.Link(f.Name(), filepath.Join(dir, name))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// treeFiles names the files of a tree.
func treeFiles(t *store.Tree) (names []string, err error) {
	switch t.Kind {
	case store.TreeTemplates:
		names = []string{imageFile}
	case store.TreeEngines:
		b := &builds.Build{}
		if err := json.Unmarshal(t.Record, b); err != nil {
			return nil, err
		}
		for _, f := range b.Files {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Compare compares the template folder with the other hosts', once before the server
// is ready and then regularly until ctx ends.
func (d *Depot) Compare(ctx context.Context) {
	told := map[string]time.Time{}
	once := func(bound time.Duration) {
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		if err := d.Library.Sync(ctx); err != nil {
			d.Log.Warn("cannot compare the templates with those of the other hosts", "error", err)
		}
		if most := d.CacheBytes; most > 0 {
			if err := d.Library.Evict(ctx, most); err != nil {
				d.Log.Warn("cannot evict all unused images", "error", err)
			}
		}
		if err := d.publishBuilds(ctx, told); err != nil {
			d.Log.Warn("cannot publish this host's engine builds to the other hosts", "error", err)
		}
	}
	once(compareTime)
	go func() {
		t := time.NewTicker(compareEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				once(compareEvery)
			}
		}
	}()
}
