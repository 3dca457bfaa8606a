package server

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

// sharedTemplates shares templates between hosts.
func (m *member) sharedTemplates() *template.Shared {
	return &template.Shared{
		Store: m.shared, Host: m.config.Cluster.Name, State: filepath.Join(m.config.Home, "templates.json"), Log: m.log,
		Fetch: m.fetchImage,
		Elsewhere: func(ctx context.Context, digest string) (bool, error) {
			return m.treeElsewhere(ctx, store.TreeTemplates, strings.TrimPrefix(digest, digestPrefix))
		},
		UsedHere: m.imagesHere,
	}
}

// treeElsewhere reports whether a tree that this host has can be fetched again: it is in the object
// storage, or the host that published it has it, of which the others ask this as well.
func (s *Server) treeElsewhere(ctx context.Context, kind, name string) (bool, error) {
	t, err := s.shared.Tree(ctx, kind, name)
	if bothy.ErrorCode(err) == bothy.CodeNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if s.bucket != nil && s.bucket.Usable() == nil && t.StoredAt != nil && t.UnneededAt == nil {
		return true, nil
	}
	names, err := treeFiles(t)
	if err != nil || len(names) == 0 || s.trees == nil {
		return false, err
	}
	return s.trees.Has(ctx, t.Host, kind, name, names[0])
}

// imagesHere are the digests of the images of sandboxes that this host has, and of those that it has
// golden snapshots of.
func (s *Server) imagesHere(ctx context.Context) (map[string]bool, error) {
	used := map[string]bool{}
	open, err := s.store.OwnSandboxesInState(ctx, unended...)
	if err != nil {
		return nil, err
	}
	for _, sb := range open {
		used[sb.TemplateDigest] = true
	}
	names, err := s.golden.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := blob.ReadFile(ctx, s.golden, name, snapshot.ManifestName)
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
func (s *Server) fetchImage(ctx context.Context, t *store.Template, to string) error {
	name := strings.TrimPrefix(t.Digest, digestPrefix)
	tree, err := s.shared.Tree(ctx, store.TreeTemplates, name)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".tree-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := s.fetchTree(ctx, tree, dir, []treeFile{{imageFile, t.SizeBytes}}); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, imageFile), to)
}

// fetchBuild writes the files of an engine build that this host lacks into a folder.
func (s *Server) fetchBuild(name, dir string) (*builds.Build, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	tree, err := s.shared.Tree(ctx, store.TreeEngines, name)
	if err != nil {
		return nil, err
	}
	b := &builds.Build{}
	if err := json.Unmarshal(tree.Record, b); err != nil {
		return nil, err
	}
	var files []treeFile
	for _, f := range s.builds.Missing(b) {
		files = append(files, treeFile{f.Name, f.Size})
	}
	if len(files) == 0 {
		return b, nil
	}
	return b, s.fetchTree(ctx, tree, dir, files)
}

// publishBuilds tells the other hosts about the engine builds on this one. It repeats each
// regularly, since builds that no host announces are deleted from the object storage.
func (s *Server) publishBuilds(ctx context.Context, told map[string]time.Time) error {
	all, err := builds.List(s.builds.Dir())
	if err != nil {
		return err
	}
	for _, b := range all {
		if time.Since(told[b.Name]) < tellAgain {
			continue
		}
		if err := s.putBuild(ctx, b); err != nil {
			return err
		}
		told[b.Name] = time.Now()
	}
	return nil
}

// publishBuild tells the other hosts about an engine build, if it is on this one and they do not know
// it.
func (s *Server) publishBuild(ctx context.Context, name string) error {
	if _, err := s.shared.Tree(ctx, store.TreeEngines, name); bothy.ErrorCode(err) != bothy.CodeNotFound {
		return err
	}
	all, err := builds.List(s.builds.Dir())
	if err != nil {
		return err
	}
	for _, b := range all {
		if b.Name == name {
			return s.putBuild(ctx, b)
		}
	}
	return nil
}

func (s *Server) putBuild(ctx context.Context, b builds.Build) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return s.shared.PutTree(ctx, store.Tree{Kind: store.TreeEngines, Name: b.Name, Host: s.config.Cluster.Name, Bytes: b.Size(), At: time.Now(), Record: text})
}

// openShared opens a file for another host.
func (s *Server) openShared(kind, name, file string) (*os.File, error) {
	switch {
	case kind == store.TreeTemplates && file == imageFile:
		return s.templates.OpenShared(digestPrefix + name)
	case kind == store.TreeEngines:
		return s.builds.OpenFile(name, file)
	}
	return nil, fs.ErrNotExist
}

// linkTree hard-links all files of a tree on this host into a folder. It returns fs.ErrNotExist
// if this host lacks any of them.
func (s *Server) linkTree(t *store.Tree, dir string) error {
	names, err := treeFiles(t)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fs.ErrNotExist
	}
	for _, name := range names {
		f, err := s.openShared(t.Kind, t.Name, name)
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

// compareTemplates compares the template folder with the other hosts', once before the server
// is ready and then regularly until ctx ends.
func (m *member) compareTemplates(ctx context.Context) {
	told := map[string]time.Time{}
	once := func(bound time.Duration) {
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		if err := m.templates.Sync(ctx); err != nil {
			m.log.Warn("cannot compare the templates with those of the other hosts", "error", err)
		}
		if most := m.config.Snapshots.CacheMB << 20; most > 0 {
			if err := m.templates.Evict(ctx, most); err != nil {
				m.log.Warn("cannot evict all unused images", "error", err)
			}
		}
		if err := m.publishBuilds(ctx, told); err != nil {
			m.log.Warn("cannot publish this host's engine builds to the other hosts", "error", err)
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
