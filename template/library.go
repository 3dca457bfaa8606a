package template

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
)

const (
	imageName    = "rootfs.erofs"
	manifestName = "manifest.json"
	currentName  = "current"
	digestPrefix = "sha256:"
)

// Options change how a Library works. The zero value is right for a server.
type Options struct {
	// InUse reports whether something still needs the image with this digest.
	// Without it every image counts as unused when its template is removed, and
	// as used when its template is built again.
	InUse func(ctx context.Context, digest string) (bool, error)
	// Share is the folder of the data files that come with bothy. Without it
	// BOTHY_SHARE is asked, then the neighbourhood of the program.
	Share string
}

// A Library is a folder of templates.
type Library struct {
	dir   string
	opts  Options
	shelf shelf
}

var _ bothy.TemplateService = (*Library)(nil)

// NewLibrary returns the library in dir, which need not exist yet.
func NewLibrary(dir string, opts Options) *Library {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return &Library{dir: dir, opts: opts}
}

// Templates lists the templates by name. Damaged ones are left out; asking for
// one by its name says what is wrong with it.
func (l *Library) Templates(ctx context.Context) ([]*bothy.Template, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesRead); err != nil {
		return nil, err
	}
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	list := make([]*bothy.Template, 0, len(names))
	for _, name := range names {
		if t, err := l.load(name, currentName); err == nil {
			list = append(list, t)
		}
	}
	return list, nil
}

// Template finds a template by its name, or an image by its digest in the form
// sha256:<hex>, also one that its name has moved on from.
func (l *Library) Template(ctx context.Context, name string) (*bothy.Template, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesRead); err != nil {
		return nil, err
	}
	return l.Lookup(name)
}

// Lookup is Template for the server itself: it asks for no scope.
func (l *Library) Lookup(name string) (*bothy.Template, error) {
	if hex, ok := strings.CutPrefix(name, digestPrefix); ok {
		return l.byDigest(hex)
	}
	return l.byName(name)
}

func (l *Library) byName(name string) (*bothy.Template, error) {
	if !bothy.ValidTemplateName(name) {
		return nil, invalidName(name)
	}
	if _, err := os.Lstat(filepath.Join(l.dir, name, currentName)); errors.Is(err, fs.ErrNotExist) {
		return nil, l.notFound(name)
	}
	return l.load(name, currentName)
}

func (l *Library) byDigest(hex string) (*bothy.Template, error) {
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !filepath.IsLocal(hex) || strings.ContainsRune(hex, filepath.Separator) {
			break
		}
		if _, err := os.Stat(filepath.Join(l.dir, name, hex)); err == nil {
			return l.load(name, hex)
		}
	}
	return nil, bothy.Errorf(bothy.CodeTemplateNotFound, "there is no template image with the digest %s%s", digestPrefix, hex).
		WithHint("It was removed together with its template; build the template again.")
}

// RemoveTemplate deletes a template. It is CodeTemplateInUse while a sandbox or
// a snapshot needs the image behind the name.
func (l *Library) RemoveTemplate(ctx context.Context, name string) error {
	if _, err := bothy.RequireOperator(ctx, bothy.ScopeTemplatesWrite); err != nil {
		return err
	}
	if !bothy.ValidTemplateName(name) {
		return invalidName(name)
	}
	unlock, err := l.lock(ctx, name, func() {})
	if err != nil {
		return err
	}
	defer unlock()
	digests, err := l.digests(name)
	if err != nil {
		return err
	}
	if len(digests) == 0 {
		return l.notFound(name)
	}
	for _, hex := range digests {
		if used, err := l.inUse(ctx, hex, false); err != nil {
			return err
		} else if used {
			return bothy.Errorf(bothy.CodeTemplateInUse, "a sandbox or a snapshot still needs the template %s", name).
				WithHint("Terminate its sandboxes and delete its snapshots first: bothy ls, bothy snapshots.")
		}
	}
	// The link goes first: without it the rest is invisible.
	if err := os.Remove(filepath.Join(l.dir, name, currentName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove template %s: %w", name, err)
	}
	return os.RemoveAll(filepath.Join(l.dir, name))
}

// inUse asks whether an image is needed; unknown is the answer when nobody knows.
func (l *Library) inUse(ctx context.Context, hex string, unknown bool) (bool, error) {
	if l.opts.InUse == nil {
		return unknown, nil
	}
	used, err := l.opts.InUse(ctx, digestPrefix+hex)
	if err != nil {
		return false, fmt.Errorf("ask whether image %s is in use: %w", hex, err)
	}
	return used, nil
}

// names lists what looks like a template, in order.
func (l *Library) names() ([]string, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(l.dir, e.Name(), currentName)); err == nil && bothy.ValidTemplateName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// digests lists the images that a name has, the current one and older ones.
func (l *Library) digests(name string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(l.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list images of %s: %w", name, err)
	}
	var list []string
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, e.Name())
		}
	}
	return list, nil
}

// load finds one version of a template and checks it against its image.
func (l *Library) load(name, version string) (*bothy.Template, error) {
	path := l.path(name, version)
	if t := l.shelf.get(path); t != nil {
		return t, nil
	}
	dir, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, damaged(name, "its image is missing").Because(err)
	}
	// What is changed after this look is read again the next time.
	manifest, err := os.Stat(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, damaged(name, "its manifest cannot be read").Because(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, damaged(name, "its manifest cannot be read").Because(err)
	}
	t := &bothy.Template{}
	if err := json.Unmarshal(data, t); err != nil {
		return nil, damaged(name, "its manifest is not valid JSON").Because(err)
	}
	if t.Version != bothy.ManifestVersion {
		return nil, damaged(name, fmt.Sprintf("its manifest has version %d and this bothy knows version %d", t.Version, bothy.ManifestVersion))
	}
	t.RootFS = filepath.Join(dir, imageName)
	image, err := os.Stat(t.RootFS)
	if err != nil {
		return nil, damaged(name, "its image is missing").Because(err)
	}
	if image.Size() != t.SizeBytes || t.Digest != digestPrefix+filepath.Base(dir) {
		return nil, damaged(name, fmt.Sprintf("its image has %d bytes where the manifest says %d, or another digest", image.Size(), t.SizeBytes))
	}
	l.shelf.put(path, kept{t, manifest, image})
	return t, nil
}

// path is where a version lies. The link that current is may move on at any time,
// so what it points to is another path each time.
func (l *Library) path(name, version string) string {
	home := filepath.Join(l.dir, name)
	if target, err := os.Readlink(filepath.Join(home, version)); err == nil && filepath.IsLocal(target) && filepath.Base(target) == target {
		version = target
	}
	return filepath.Join(home, version)
}

func damaged(name, how string) *bothy.Error {
	return bothy.Errorf(bothy.CodeTemplateInvalid, "the template %s is damaged: %s", name, how).
		WithHint("Build it again: bothy template build %s --force.", name)
}

func invalidName(name string) *bothy.Error {
	return bothy.Errorf(bothy.CodeInvalid, "%q cannot be the name of a template", name).
		WithHint("Use up to 63 small letters, digits, dots, dashes and underscores, beginning with a letter or a digit.")
}

func (l *Library) notFound(name string) *bothy.Error {
	names, _ := l.names()
	there := cmp.Or(strings.Join(names, ", "), "none")
	e := bothy.Errorf(bothy.CodeTemplateNotFound, "there is no template %s; there is: %s", name, there)
	if slices.Contains(BuiltIn(), name) {
		return e.WithHint("Make it: bothy template build %s.", name)
	}
	return e.WithHint("Built in are %s (bothy template build NAME); an image becomes one by bothy template import IMAGE %s.", strings.Join(BuiltIn(), ", "), name)
}
