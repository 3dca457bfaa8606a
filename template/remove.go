package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
)

// RemoveTemplate deletes one of the caller's own templates.
func (l *Library) RemoveTemplate(ctx context.Context, name string) error {
	c, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite)
	if err != nil {
		return err
	}
	ref, err := bothy.ParseTemplateRef(name)
	if err != nil {
		return err
	}
	if ref.Digest != "" {
		return bothy.Errorf(bothy.CodeInvalid, "%s is an image, but only names can be removed", name).
			WithHint("Remove its name or its tag; the image is deleted once nothing needs it.")
	}
	l.look(ctx)
	own := l.of(c.ProjectID)
	if own != l && len(own.tags(ref.Name)) == 0 && len(l.tags(ref.Name)) > 0 {
		return bothy.Errorf(bothy.CodeForbidden, "the template %s is public, and only the operator may remove it", ref.Name).
			WithHint("Ask the operator of this server.")
	}
	return own.remove(ctx, ref, name != ref.Name)
}

// removalLock serialises removals: of two names with the same image, the second removal must
// see that the first name is gone.
const removalLock = ".removal"

// remove deletes a name, or one tag of it.
func (l *Library) remove(ctx context.Context, ref bothy.TemplateRef, tag bool) error {
	unlockAll, err := l.lock(ctx, removalLock, func() {})
	if err != nil {
		return err
	}
	defer unlockAll()
	unlock, err := l.lock(ctx, ref.Name, func() {})
	if err != nil {
		return err
	}
	defer unlock()
	link := tagLink(ref.Tag)
	digests, err := l.digests(ref.Name)
	if err != nil {
		return err
	}
	for link := range l.awayFrom(ref.Name) {
		digests = append(digests, filepath.Base(l.path(ref.Name, link)))
	}
	slices.Sort(digests)
	digests = slices.Compact(digests)
	var kept map[string]bool
	if tag {
		if !slices.Contains(l.tags(ref.Name), link) {
			return notFound(ref.String(), []*Library{l})
		}
		kept = l.tagged(ref.Name, link)
		digests = []string{filepath.Base(l.path(ref.Name, link))}
	}
	if len(digests) == 0 {
		return notFound(ref.String(), []*Library{l})
	}
	memory := l.memoryOf(ref.Name, digests, kept)
	bases, err := l.memoryBases(ref.Name)
	if err != nil {
		return err
	}
	for _, hex := range digests {
		if kept[hex] {
			continue
		}
		used, err := l.inUse(ctx, hex, memory, false)
		if err != nil {
			return err
		}
		if (used || bases[hex]) && !l.elsewhere(ref.Name, hex) {
			return bothy.Errorf(bothy.CodeTemplateInUse, "a sandbox or a snapshot still needs the template %s", ref).
				WithHint("Terminate its sandboxes and delete its snapshots first: bothy ls, bothy snapshots.")
		}
	}
	going := l.tags(ref.Name)
	if tag && len(kept) > 0 {
		going = []string{link}
	}
	// Tell the store first, so that a host that was unavailable does not bring the name back.
	if err := l.unrecord(ctx, ref.Name, going...); err != nil {
		return err
	}
	if tag && len(kept) > 0 {
		if err := os.Remove(filepath.Join(l.home(ref.Name), link)); err != nil && !(l.common != nil && errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("remove template %s: %w", ref, err)
		}
		return l.collect(ctx, ref.Name)
	}
	// Delete the links first: without them the rest is invisible.
	for _, link := range l.links(ref.Name) {
		if err := os.Remove(filepath.Join(l.home(ref.Name), link)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove template %s: %w", ref, err)
		}
	}
	var errs []error
	for _, hex := range digests {
		errs = append(errs, l.discard(ctx, ref.Name, hex))
	}
	return errors.Join(append(errs, os.RemoveAll(l.home(ref.Name)))...)
}

// elsewhere reports whether another name also has an image.
func (l *Library) elsewhere(name, hex string) bool {
	names, _ := l.folders()
	for _, other := range names {
		if _, err := os.Stat(filepath.Join(l.home(other), hex, imageName)); other != name && err == nil {
			return true
		}
	}
	return len(l.common.with(l.project, func(k nameKey, n sharedName) bool { return k.name != name && n.digest == digestPrefix+hex })) > 0
}

// awayFrom returns the links of a name that hosts share.
func (l *Library) awayFrom(name string) map[string]bool {
	links := map[string]bool{}
	for k := range l.common.withName(l.project, name, func(_ nameKey, n sharedName) bool { return n.digest != "" }) {
		links[tagLink(k.tag)] = true
	}
	return links
}

// memoryBases returns the images that templates' memory depends on, except those of one name.
// The snapshots with the memory may be on other hosts.
func (l *Library) memoryBases(but string) (map[string]bool, error) {
	in := []*Library{l}
	if l.project == "" {
		all, err := l.everything()
		if err != nil {
			return nil, err
		}
		in = all
	}
	list, err := l.listed(in)
	bases := map[string]bool{}
	for _, t := range list {
		if t.Memory != nil && (t.Name != but || t.Project != l.project) {
			bases[strings.TrimPrefix(t.Memory.BaseDigest, digestPrefix)] = true
		}
	}
	return bases, err
}

// memoryOf returns the memory snapshots of images of a name, except those to be kept.
func (l *Library) memoryOf(name string, digests []string, kept map[string]bool) map[string]bool {
	snapshots := map[string]bool{}
	for _, hex := range digests {
		if t, err := l.load(name, hex); err == nil && t.Memory != nil && !kept[hex] {
			snapshots[t.Memory.SnapshotID] = true
		}
	}
	return snapshots
}

// collect deletes the unneeded, untagged images of a name. The caller holds the name's lock.
func (l *Library) collect(ctx context.Context, name string) error {
	digests, err := l.digests(name)
	if err != nil {
		return err
	}
	kept := l.tagged(name, "")
	bases, err := l.memoryBases("")
	if err != nil {
		return err
	}
	maps.Copy(kept, bases)
	var errs []error
	for _, hex := range digests {
		if kept[hex] {
			continue
		}
		used, err := l.inUse(ctx, hex, nil, true)
		if err == nil && !used {
			err = l.discard(ctx, name, hex)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Collect deletes all unneeded, untagged images. A server calls it regularly: what used an
// image may have ended since its tag moved.
func (l *Library) Collect(ctx context.Context) error {
	all, err := l.everything()
	if err != nil {
		return err
	}
	errs := []error{l.removeFetches()}
	for _, at := range all {
		names, err := at.folders()
		errs = append(errs, err)
		for _, name := range names {
			unlock, err := at.lock(ctx, name, func() {})
			if err != nil {
				return errors.Join(append(errs, err)...)
			}
			errs = append(errs, at.collect(ctx, name))
			_ = os.Remove(at.home(name)) // succeeds only if it is empty
			unlock()
		}
	}
	return errors.Join(errs...)
}

// quotaLock serialises comparisons with a quota, until what is published counts.
const quotaLock = ".quota"

// quota is how many bytes the templates of this library's project may use; 0 is no bound.
func (l *Library) quota(ctx context.Context) (int64, error) {
	if l.project == "" || l.opts.Quota == nil {
		return 0, nil
	}
	return l.opts.Quota(ctx, l.project)
}

// checkQuota returns an error if so many bytes more exceed a quota.
func (l *Library) checkQuota(quota, more int64) error {
	used, err := l.used()
	if err != nil || more <= quota-used {
		return err
	}
	return overQuota(used, quota, more)
}

func overQuota(used, quota, more int64) error {
	return bothy.Errorf(bothy.CodeQuota, "the project's templates use %d MB of their quota of %d MB; this template needs another %d MB", used>>20, quota>>20, more>>20).
		WithHint("Delete unneeded templates: `bothy template ls` lists them, `bothy template rm` deletes.")
}

// used is the total size of this library's images in bytes.
func (l *Library) used() (sum int64, err error) {
	here := map[string]bool{}
	names, err := l.folders()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		digests, err := l.digests(name)
		if err != nil {
			return 0, err
		}
		for _, hex := range digests {
			if info, err := os.Stat(filepath.Join(l.home(name), hex, imageName)); err == nil {
				here[name+" "+hex] = true
				sum += info.Size()
			}
		}
	}
	// Images on other hosts count as well: they belong to the project.
	for k, n := range l.common.with(l.project, func(_ nameKey, n sharedName) bool { return n.digest != "" }) {
		if id := k.name + " " + digestOf(n.digest); !here[id] {
			here[id] = true
			sum += n.template.SizeBytes
		}
	}
	return sum, nil
}

// UsedBy is the total size of a project's own templates in bytes.
func (l *Library) UsedBy(project string) (int64, error) { return l.of(project).used() }
