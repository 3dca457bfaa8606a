package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// TagTemplate adds tags to one of the caller's own templates, and returns it under each of
// them.
func (l *Library) TagTemplate(ctx context.Context, name string, tags []string) ([]*bothy.Template, error) {
	c, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite)
	if err != nil {
		return nil, err
	}
	ref, err := bothy.ParseTemplateRef(name)
	if err != nil {
		return nil, err
	}
	if ref.Name == "" {
		return nil, bothy.Errorf(bothy.CodeInvalid, "%s is an image, but only names have tags", name).
			WithHint("Give the template's name with it: NAME@DIGEST.")
	}
	if len(tags) == 0 || len(tags) > bothy.MaxTemplateTags {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the request has %d tags for the template %s", len(tags), ref.Name).
			WithHint("Give from 1 to %d.", bothy.MaxTemplateTags)
	}
	for _, tag := range tags {
		if r, err := bothy.ParseTemplateRef(ref.Name + ":" + tag); err != nil || r.Digest != "" || r.Tag != tag {
			return nil, bothy.Errorf(bothy.CodeInvalid, "%q is not a valid tag", tag).
				WithHint("Use up to 63 letters, digits, dots, dashes and underscores, not starting with a dot or a dash.")
		}
	}
	l.look(ctx)
	own := l.of(c.ProjectID)
	if own != l && len(own.tags(ref.Name)) == 0 && len(l.tags(ref.Name)) > 0 {
		return nil, bothy.Errorf(bothy.CodeForbidden, "the template %s is public, and only the operator may tag it", ref.Name).
			WithHint("Ask the operator of this server, or build a template of your own FROM %s.", ref.Name)
	}
	tagged, err := own.tag(ctx, ref, tags)
	return shown(tagged), err
}

// Untag removes a tag of the caller's project even if its image is needed; the image is then
// kept for as long. A missing tag is not an error.
func (l *Library) Untag(ctx context.Context, name, tag string) error {
	if c := bothy.CallerFrom(ctx); c != nil {
		l = l.of(c.ProjectID)
	}
	unlock, err := l.lock(ctx, name, func() {})
	if err != nil {
		return err
	}
	defer unlock()
	if row, known := l.common.of(l.key(name, tagLink(tag))); !known || row.digest != "" {
		if err := l.unrecord(ctx, name, tagLink(tag)); err != nil {
			return err
		}
	}
	err = os.Remove(filepath.Join(l.home(name), tagLink(tag)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("untag template %s:%s: %w", name, tag, err)
	}
	err = l.collect(ctx, name)
	_ = os.Remove(l.home(name)) // succeeds only if it is empty
	return err
}

func (l *Library) tag(ctx context.Context, ref bothy.TemplateRef, tags []string) ([]*store.Template, error) {
	unlock, err := l.lock(ctx, ref.Name, func() {})
	if err != nil {
		return nil, err
	}
	defer unlock()
	t, err := l.byRef(ref)
	if err != nil {
		return nil, err
	}
	version := filepath.Base(filepath.Dir(t.RootFS))
	tagged := make([]*store.Template, len(tags))
	if l.common != nil {
		for i, tag := range tags {
			tagged[i] = clone(t)
			tagged[i].Tag = tagOf(tagLink(tag))
		}
		if err := l.record(ctx, 0, tagged...); err != nil {
			return nil, err
		}
		if !isHere(t) { // its tags are linked here when it is fetched
			return tagged, l.collect(ctx, ref.Name)
		}
	}
	for i, tag := range tags {
		if err := l.point(ref.Name, version, tagLink(tag)); err != nil {
			return nil, fmt.Errorf("tag template %s: %w", ref, err)
		}
		if tagged[i], err = l.load(ref.Name, tagLink(tag)); err != nil {
			return nil, err
		}
	}
	return tagged, l.collect(ctx, ref.Name)
}
