package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/store"
)

// fetching is an image that is being fetched, shared by all callers. It continues when they
// leave, since the next will ask again.
type fetching struct {
	done chan struct{}
	err  error
}

// fetchTimeout limits the fetch of one image.
const fetchTimeout = 30 * time.Minute

// isHere reports whether this host has the image of a template.
func isHere(t *store.Template) bool {
	_, err := os.Stat(t.RootFS)
	return err == nil
}

// bring makes sure that this host has a template's image, fetching it if needed.
func (l *Library) bring(ctx context.Context, t *store.Template) error {
	if l.common == nil {
		return nil
	}
	l.common.touch(filepath.Dir(t.RootFS)) // from now on it is not evicted
	if isHere(t) {
		return nil
	}
	f := l.fetch(t)
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fetch starts fetching a template's image, unless that is in progress.
func (l *Library) fetch(t *store.Template) *fetching {
	s, at := l.common, l.of(t.Project)
	path := filepath.Join(at.home(t.Name), digestOf(t.Digest))
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.fetches[path]; f != nil {
		return f
	}
	f := &fetching{done: make(chan struct{})}
	s.fetches[path] = f
	wanted := clone(t)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		begun := time.Now()
		f.err = at.fetchNow(ctx, wanted)
		if f.err != nil {
			s.Log.Warn("cannot fetch the image of a template", "template", wanted.Ref(), "digest", wanted.Digest, "error", f.err)
		} else {
			s.Log.Info("fetched the image of a template", "template", wanted.Ref(), "digest", wanted.Digest, "bytes", wanted.SizeBytes, "ms", time.Since(begun).Milliseconds())
		}
		s.mu.Lock()
		delete(s.fetches, path)
		s.mu.Unlock()
		close(f.done)
	}()
	return f
}

// fetchNow fetches an image into this library, completely or not at all.
func (l *Library) fetchNow(ctx context.Context, t *store.Template) error {
	if isHere(t) {
		return nil // another fetch has just finished
	}
	parent := filepath.Join(l.dir, ".build")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("fetch the template %s: %w", t.Ref(), err)
	}
	work, err := os.MkdirTemp(parent, ".fetch-*")
	if err != nil {
		return fmt.Errorf("fetch the template %s: %w", t.Ref(), err)
	}
	defer os.RemoveAll(work)
	image := filepath.Join(work, imageName)
	if other := l.sameImage(t); other != "" {
		err = linkOrCopy(other, image)
	} else {
		if err := l.makeRoom(ctx, t.SizeBytes); err != nil {
			return bothy.Errorf(bothy.CodeDiskFull, "the host's disk has no room to fetch the template %s, which has %d MB", t.Ref(), t.SizeBytes>>20).
				WithHint("Delete unneeded templates and snapshots, or ask the operator for disk space.").Because(err)
		}
		err = l.common.Fetch(ctx, t, image)
	}
	if err != nil {
		return err
	}
	if err := checkImage(ctx, t, image); err != nil {
		return err
	}
	if err := failpoint.Hit("template.fetched"); err != nil {
		return err
	}
	if err := writeManifest(work, t); err != nil {
		return err
	}
	home := l.home(t.Name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return fmt.Errorf("fetch the template %s: %w", t.Ref(), err)
	}
	if err := moveVersion(work, filepath.Join(home, digestOf(t.Digest))); err != nil {
		return fmt.Errorf("fetch the template %s: %w", t.Ref(), err)
	}
	if err := l.markFetched(t.Name, digestOf(t.Digest)); err != nil {
		return err
	}
	return l.linkFetched(t)
}

// makeRoom returns disk.ErrNoRoom if so many bytes do not fit, even after other fetched images
// were evicted.
func (l *Library) makeRoom(ctx context.Context, bytes int64) error {
	room := func() error { return roomFor(l.dir, bytes, l.opts.MinFreeDisk) }
	if room() == nil {
		return nil
	}
	if err := l.root().evict(ctx, func(int64) bool { return room() == nil }); err != nil {
		l.common.Log.Warn("cannot evict images to make room for another", "error", err)
	}
	return room()
}

// removeFetches deletes what killed fetches left.
func (l *Library) removeFetches() error {
	var errs []error
	all, err := l.everything()
	if err != nil {
		return err
	}
	for _, at := range all {
		left, _ := filepath.Glob(filepath.Join(at.dir, ".build", ".fetch-*"))
		for _, dir := range left {
			if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > 2*fetchTimeout {
				errs = append(errs, os.RemoveAll(dir))
			}
		}
	}
	return errors.Join(errs...)
}

// linkFetched gives a fetched image the names in the folder that it has in the store, so that a
// server that later leaves the cluster finds them.
func (l *Library) linkFetched(t *store.Template) error {
	unlock, free, err := l.tryLock(t.Name)
	if err != nil || !free {
		return err // the holder of the lock links names itself
	}
	defer unlock()
	var links []string
	for k := range l.common.withName(l.project, t.Name, func(_ nameKey, n sharedName) bool { return n.digest == t.Digest }) {
		links = append(links, tagLink(k.tag))
	}
	return l.point(t.Name, digestOf(t.Digest), links...)
}

// sameImage is the path of an image that another name or project has here, or "".
func (l *Library) sameImage(t *store.Template) string {
	all, err := l.root().everything()
	if err != nil {
		return ""
	}
	for _, at := range all {
		names, _ := at.folders()
		for _, name := range names {
			path := filepath.Join(at.home(name), digestOf(t.Digest), imageName)
			if info, err := os.Stat(path); err == nil && info.Size() == t.SizeBytes && path != t.RootFS {
				return path
			}
		}
	}
	return ""
}

// checkImage verifies an image's digest, and syncs it.
func checkImage(ctx context.Context, t *store.Template, image string) error {
	f, err := os.Open(image)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, &untilDone{ctx, f})
	if err != nil {
		return err
	}
	if got := digestPrefix + hex.EncodeToString(h.Sum(nil)); got != t.Digest || n != t.SizeBytes {
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the fetched image of the template %s does not match its digest", t.Ref()).
			WithHint("Nothing was started from it. Build the template again: bothy template build %s --force.", t.Name)
	}
	return errors.Join(os.Chmod(image, 0o644), f.Sync())
}

// roomFor returns disk.ErrNoRoom if the given bytes do not fit.
func roomFor(dir string, bytes, free int64) error {
	have, err := disk.Free(dir)
	if err == nil && bytes > have-free {
		err = disk.ErrNoRoom
	}
	return err
}

// byDigestElsewhere finds a template by the digest of an image that this host does not have. It
// is not found if no host has published it, or if it belongs to a project that is not in the
// given libraries.
func (l *Library) byDigestElsewhere(ctx context.Context, in []*Library, hex string) (*store.Template, error) {
	if l.common == nil || !isDigest(digestPrefix+hex) {
		return nil, noDigest(hex)
	}
	for _, at := range in {
		for k, n := range l.common.with(at.project, func(_ nameKey, n sharedName) bool { return n.digest == digestPrefix+hex }) {
			return at.away(n.template, k.name, ""), nil
		}
	}
	tree, err := l.common.Store.Tree(ctx, store.TreeTemplates, hex)
	if bothy.ErrorCode(err) == bothy.CodeNotFound {
		return nil, noDigest(hex)
	}
	if err != nil {
		return nil, err
	}
	t, err := sharedTemplate(store.TemplateName{Digest: digestPrefix + hex, Manifest: tree.Record})
	if err != nil {
		return nil, damaged(digestPrefix+hex, err.Error())
	}
	for _, at := range in {
		if at.project == t.Project {
			return at.away(t, t.Name, ""), nil
		}
	}
	return nil, noDigest(hex)
}

// away returns a template whose image this host does not have yet, as this library will store
// it.
func (l *Library) away(t *store.Template, name, tag string) *store.Template {
	t = clone(t)
	t.Name, t.Tag, t.Project = name, tag, l.project
	t.RootFS = filepath.Join(l.home(name), digestOf(t.Digest), imageName)
	return t
}

// OpenShared opens an image for another host; fs.ErrNotExist if it is not here.
func (l *Library) OpenShared(digest string) (*os.File, error) {
	if !isDigest(digest) {
		return nil, os.ErrNotExist
	}
	all, err := l.everything()
	if err != nil {
		return nil, err
	}
	t, err := byDigest(all, digestOf(digest))
	if bothy.ErrorCode(err) == bothy.CodeTemplateNotFound {
		return nil, os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	return os.Open(t.RootFS)
}
