package template

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/templates"
)

const (
	imageName    = "rootfs.erofs"
	manifestName = "manifest.json"
	currentName  = "current"
	digestPrefix = "sha256:"
)

// Options configure a Library. The zero value is right for a server.
type Options struct {
	// InUse reports whether anything in a project, or in any project if it is empty, still
	// needs the image with this digest. Snapshots in without do not count. If InUse is nil,
	// every image counts as unused when its template is removed, and as used when its template
	// is rebuilt.
	InUse func(ctx context.Context, project, digest string, without map[string]bool) (bool, error)
	// Quota returns how many bytes a project's templates may take up; 0 means no limit.
	Quota func(ctx context.Context, project string) (int64, error)
	// MinFreeDisk is how many bytes of the host's disk imports leave free; 0 means no limit.
	MinFreeDisk int64
	// Transport connects projects other than the operator's to registries, and restricts which.
	// Without it they reach none.
	Transport http.RoundTripper
	// Registries configures mirrors, and registries without TLS.
	Registries Registries
	// Forget deletes the snapshot of a removed template.
	Forget func(ctx context.Context, project, snapshotID string)
	// Version is that of the server.
	Version string
	// Shared is set in a cluster, whose hosts share their templates.
	Shared *Shared
	// Share is the folder of the data files that come with bothy. The default is BOTHY_SHARE,
	// or else folders near the program.
	Share string
}

// A Library is a folder of templates: public ones, and those of projects in .projects.
type Library struct {
	dir   string
	opts  Options
	shelf shelf
	// project owns all templates of this library, if it is part of another one.
	project  string
	projects projects
	common   *common
	// parent is the library that this one is part of.
	parent *Library
}

var _ bothy.TemplateService = (*Library)(nil)

// NewLibrary returns the library in dir, which need not exist yet.
func NewLibrary(dir string, opts Options) *Library {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return &Library{dir: dir, opts: opts, common: newCommon(opts.Shared)}
}

// Templates lists the templates by name. Damaged ones are omitted; looking one up reports the
// damage.
func (l *Library) Templates(ctx context.Context) ([]*bothy.Template, error) {
	c, err := bothy.Require(ctx, bothy.ScopeTemplatesRead)
	if err != nil {
		return nil, err
	}
	l.look(ctx)
	list, err := l.listed(l.visible(c.ProjectID))
	return shown(list), err
}

// shown are what clients see of templates.
func shown(list []*store.Template) []*bothy.Template {
	all := make([]*bothy.Template, len(list))
	for i, t := range list {
		all[i] = &t.Template
	}
	return all
}

// Lookup finds a template for the server itself: a public one by name, or any image by digest,
// even an untagged one. It checks no scope.
func (l *Library) Lookup(name string) (*store.Template, error) {
	if hex, ok := strings.CutPrefix(name, digestPrefix); ok {
		all, err := l.everything()
		if err != nil {
			return nil, err
		}
		t, err := byDigest(all, hex)
		return l.ifHere(t, err)
	}
	t, err := l.find("", name)
	return l.ifHere(t, err)
}

// ifHere starts to fetch an image that this host does not have, and returns an error meanwhile.
func (l *Library) ifHere(t *store.Template, err error) (*store.Template, error) {
	if err != nil || l.common == nil {
		return t, err
	}
	l.common.touch(filepath.Dir(t.RootFS))
	if isHere(t) {
		return t, nil
	}
	l.fetch(t)
	return nil, bothy.Errorf(bothy.CodeTemplateNotFound, "the image of the template %s is not on this host yet", t.Ref()).WithHint("It is being fetched.")
}

// Template finds a template as the caller's project sees it.
func (l *Library) Template(ctx context.Context, name string) (*bothy.Template, error) {
	t, err := l.findForCaller(ctx, name)
	if err != nil {
		return nil, err
	}
	return &t.Template, nil
}

func (l *Library) findForCaller(ctx context.Context, name string) (*store.Template, error) {
	c, err := bothy.Require(ctx, bothy.ScopeTemplatesRead)
	if err != nil {
		return nil, err
	}
	l.look(ctx)
	return l.find(c.ProjectID, name)
}

// LookupFor finds a template as a project sees it, in order to use it. An image on other
// hosts is fetched.
func (l *Library) LookupFor(ctx context.Context, project, name string) (*store.Template, error) {
	l.look(ctx)
	t, err := l.find(project, name)
	if hex, ok := strings.CutPrefix(name, digestPrefix); ok && bothy.ErrorCode(err) == bothy.CodeTemplateNotFound {
		t, err = l.byDigestElsewhere(ctx, l.visible(project), hex)
	}
	if err == nil {
		err = l.bring(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// find finds a template as a project sees it: its own, then public ones.
func (l *Library) find(project, name string) (*store.Template, error) {
	ref, err := bothy.ParseTemplateRef(name)
	if err != nil {
		return nil, err
	}
	visible := l.visible(project)
	if ref.Digest != "" && ref.Name == "" {
		return byDigest(visible, strings.TrimPrefix(ref.Digest, digestPrefix))
	}
	for _, at := range visible {
		if t, err := at.byRef(ref); bothy.ErrorCode(err) != bothy.CodeTemplateNotFound {
			return t, err
		}
	}
	return nil, notFound(ref.String(), visible)
}

// byRef finds one of this library's own templates.
func (l *Library) byRef(ref bothy.TemplateRef) (*store.Template, error) {
	version := tagLink(ref.Tag)
	if ref.Digest != "" {
		version = strings.TrimPrefix(ref.Digest, digestPrefix)
	}
	if ref.Digest == "" {
		if row, known := l.common.of(l.key(ref.Name, version)); known && row.digest != "" {
			return l.load(ref.Name, version)
		} else if known {
			return nil, notFound(ref.String(), []*Library{l})
		}
	}
	if _, err := os.Lstat(filepath.Join(l.home(ref.Name), version)); errors.Is(err, fs.ErrNotExist) {
		if t := l.awayBy(ref.Name, version); t != nil {
			return t, nil
		}
		return nil, notFound(ref.String(), []*Library{l})
	}
	return l.load(ref.Name, version)
}

// awayBy finds an image of a name on other hosts, or returns nil.
func (l *Library) awayBy(name, hex string) *store.Template {
	for _, n := range l.common.withName(l.project, name, func(_ nameKey, n sharedName) bool { return n.digest == digestPrefix+hex }) {
		return l.away(n.template, name, "")
	}
	return nil
}

func byDigest(in []*Library, hex string) (*store.Template, error) {
	if !filepath.IsLocal(hex) || strings.ContainsRune(hex, filepath.Separator) {
		return nil, noDigest(hex)
	}
	for _, l := range in {
		names, err := l.folders()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(l.home(name), hex)); err == nil {
				return l.load(name, hex)
			}
		}
	}
	return nil, noDigest(hex)
}

// digestOf is an image's digest without its prefix.
func digestOf(digest string) string { return strings.TrimPrefix(digest, digestPrefix) }

func noDigest(hex string) error {
	return bothy.Errorf(bothy.CodeTemplateNotFound, "there is no template image with the digest %s%s", digestPrefix, hex).
		WithHint("It was removed together with its template; build the template again.")
}

// inUse reports whether an image is needed by anything except the given snapshots; unknown is
// the result if that cannot be determined.
func (l *Library) inUse(ctx context.Context, hex string, without map[string]bool, unknown bool) (bool, error) {
	if l.opts.InUse == nil {
		return unknown, nil
	}
	used, err := l.opts.InUse(ctx, l.project, digestPrefix+hex, without)
	if err != nil {
		return false, fmt.Errorf("check whether image %s is in use: %w", hex, err)
	}
	return used, nil
}

// load reads one version of a template and checks it against its image.
func (l *Library) load(name, version string) (*store.Template, error) {
	path := l.path(name, version)
	if row, known := l.common.of(l.key(name, version)); known && row.digest != "" {
		if _, err := os.Stat(filepath.Join(path, imageName)); errors.Is(err, fs.ErrNotExist) {
			return l.away(row.template, name, tagOf(version)), nil
		}
	}
	t, err := l.loadPath(name, path)
	if err == nil {
		t.Name, t.Tag, t.Project = name, tagOf(version), l.project
	}
	return t, err
}

func (l *Library) loadPath(name, path string) (*store.Template, error) {
	if t := l.shelf.get(path); t != nil {
		return t, nil
	}
	dir, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, damaged(name, "its image is missing").Because(err)
	}
	// Changes after this stat are noticed at the next load.
	file, err := os.Stat(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, damaged(name, "its manifest cannot be read").Because(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, damaged(name, "its manifest cannot be read").Because(err)
	}
	t := &store.Template{}
	if err := json.Unmarshal(data, t); err != nil {
		return nil, damaged(name, "its manifest is not valid JSON").Because(err)
	}
	if t.Version != bothy.ManifestVersion {
		return nil, damaged(name, fmt.Sprintf("its manifest has version %d, but this server supports version %d", t.Version, bothy.ManifestVersion))
	}
	t.RootFS = filepath.Join(dir, imageName)
	image, err := os.Stat(t.RootFS)
	if err != nil {
		return nil, damaged(name, "its image is missing").Because(err)
	}
	if image.Size() != t.SizeBytes || t.Digest != digestPrefix+filepath.Base(dir) {
		return nil, damaged(name, fmt.Sprintf("its image has %d bytes where the manifest says %d, or another digest", image.Size(), t.SizeBytes))
	}
	l.shelf.put(path, kept{t, file, image})
	return t, nil
}

// path is the folder of a version. A tag is a link that may move at any time, so this is its
// current target.
func (l *Library) path(name, version string) string {
	if row, known := l.common.of(l.key(name, version)); known && row.digest != "" {
		return filepath.Join(l.home(name), digestOf(row.digest))
	}
	home := l.home(name)
	if target, err := os.Readlink(filepath.Join(home, version)); err == nil && filepath.IsLocal(target) && filepath.Base(target) == target {
		version = target
	}
	return filepath.Join(home, version)
}

func damaged(name, how string) *bothy.Error {
	return bothy.Errorf(bothy.CodeTemplateInvalid, "the template %s is damaged: %s", name, how).
		WithHint("Build it again: bothy template build %s --force.", name)
}

func invalidName(name string) error {
	_, err := bothy.ParseTemplateRef(name)
	if err == nil { // a digest is not a name
		err = bothy.Errorf(bothy.CodeInvalid, "%q is a digest, not the name of a template", name).WithHint("Give a name, optionally with a tag.")
	}
	return err
}

func notFound(name string, in []*Library) error {
	var names []string
	for _, l := range in {
		own, _ := l.names()
		names = append(names, own...)
	}
	there := cmp.Or(strings.Join(names, ", "), "none")
	e := bothy.Errorf(bothy.CodeTemplateNotFound, "there is no template %s; there is: %s", name, there)
	if slices.Contains(templates.Names(), name) || name == "browser" {
		return e.WithHint("Take it from an exported file on the server's host, in seconds (bothy template pull FILE), or build it, in a minute or two (bothy template build %s).", name)
	}
	return e.WithHint("Built in are %s (bothy template build NAME); an image becomes one by bothy template import IMAGE %s.", strings.Join(templates.Names(), ", "), name)
}
