package template

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Shared says how hosts have templates in common. Their names are then those that the store
// has, and the folder holds the images that this host has needed.
type Shared struct {
	Store store.Shared
	// Host names this one.
	Host string
	// State is a file that says what the store had when it was asked last.
	State string
	// Fetch writes the image of a template to a file.
	Fetch func(ctx context.Context, t *bothy.Template, to string) error
	// Published is told of an image that this host has made.
	Published func(digest string)
	Log       *slog.Logger
}

// nameKey is a name with a tag.
type nameKey struct{ project, name, tag string }

// sharedName is what the store has of a name.
type sharedName struct {
	digest   string // empty where it was removed
	version  int64
	template *bothy.Template
}

// common are the names that hosts have in common. One is for a library and those of its
// projects.
type common struct {
	Shared
	// asking is held by who asks the store, and syncing by who compares the folder with it.
	asking, syncing sync.Mutex

	mu      sync.Mutex
	names   map[nameKey]sharedName
	version int64
	// read is set once the store was asked.
	read bool
	// fetches are the images that are being fetched.
	fetches map[string]*fetching
}

func newCommon(o *Shared) *common {
	if o == nil {
		return nil
	}
	s := &common{Shared: *o, names: map[nameKey]sharedName{}, fetches: map[string]*fetching{}}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	// Until the store answers, it is taken to have what it had.
	before, err := s.readState()
	if err != nil {
		s.Log.Warn("it is not known which templates the other hosts had", "error", err)
	}
	for _, n := range before {
		s.take(n)
	}
	return s
}

// sharedRecord is what is kept of a template in the store.
func sharedRecord(t *bothy.Template) ([]byte, error) { return json.Marshal(manifest{t, t.Origin}) }

func sharedTemplate(n store.TemplateName) (*bothy.Template, error) {
	t := &bothy.Template{}
	m := manifest{Template: t}
	if err := json.Unmarshal(n.Manifest, &m); err != nil {
		return nil, err
	}
	t.Origin = m.Origin
	if t.Version != bothy.ManifestVersion || t.Digest != n.Digest || !isDigest(t.Digest) || t.SizeBytes <= 0 {
		return nil, fmt.Errorf("its manifest has version %d, or is of another image", t.Version)
	}
	return t, nil
}

func isDigest(s string) bool {
	r, err := bothy.ParseTemplateRef(s)
	return err == nil && r.Name == "" && r.Digest != ""
}

// take notes what the store says of a name. The caller holds mu, or is alone.
func (s *common) take(n store.TemplateName) {
	row := sharedName{digest: n.Digest, version: n.Version}
	if n.Digest != "" {
		t, err := sharedTemplate(n)
		if err != nil {
			s.Log.Error("a template of the other hosts cannot be used", "template", n.Name, "tag", n.Tag, "error", err)
			return
		}
		row.template = t
	}
	s.names[nameKey{n.Project, n.Name, n.Tag}] = row
}

// of returns what the store has of a name: whether it has heard of it, and its image.
func (s *common) of(k nameKey) (row sharedName, known bool) {
	if s == nil {
		return row, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	row, known = s.names[k]
	return row, known
}

// with returns what the store has of the names of a project that keep accepts.
func (s *common) with(project string, keep func(nameKey, sharedName) bool) map[nameKey]sharedName {
	found := map[nameKey]sharedName{}
	if s == nil {
		return found
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, row := range s.names {
		if k.project == project && keep(k, row) {
			found[k] = row
		}
	}
	return found
}

// owners are the projects that have names.
func (s *common) owners() (list []string) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.names {
		if k.project != "" && !slices.Contains(list, k.project) {
			list = append(list, k.project)
		}
	}
	return list
}

// refresh takes note of what other hosts have changed before it was called.
func (s *common) refresh(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.asking.Lock()
	defer s.asking.Unlock()
	s.mu.Lock()
	at, read := s.version, s.read
	s.mu.Unlock()
	if read {
		newest, err := s.Store.TemplateVersion(ctx)
		if err != nil || newest == at {
			return err
		}
		if newest < at {
			read = false // it is another store, or an older one
		}
	}
	if !read {
		at = 0
	}
	list, newest, err := s.Store.TemplateNames(ctx, at)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if !read {
		clear(s.names)
	}
	for _, n := range list {
		s.take(n)
	}
	s.version, s.read = newest, true
	s.mu.Unlock()
	return nil
}

// look is refresh, where what was known before is good enough while the store is away.
func (l *Library) look(ctx context.Context) {
	if err := l.common.refresh(ctx); err != nil && ctx.Err() == nil {
		l.common.Log.Debug("it cannot be found out which templates other hosts have changed", "error", err)
	}
}

// record tells the store of names that were given here.
func (l *Library) record(ctx context.Context, tagged ...*bothy.Template) error {
	if l.common == nil {
		return nil
	}
	var names []store.TemplateName
	var images []store.Tree
	for _, t := range tagged {
		n, image, err := l.asNamed(t)
		if err != nil {
			return err
		}
		names, images = append(names, n), append(images, image)
	}
	err := l.common.Store.NameTemplates(context.WithoutCancel(ctx), names, images, false)
	if err == nil {
		err = l.common.refresh(context.WithoutCancel(ctx))
	}
	if err == nil && l.common.Published != nil {
		for _, i := range images {
			l.common.Published(digestPrefix + i.Name)
		}
	}
	return err
}

func (l *Library) asNamed(t *bothy.Template) (n store.TemplateName, image store.Tree, err error) {
	text, err := sharedRecord(t)
	if err != nil {
		return n, image, err
	}
	n = store.TemplateName{Project: l.project, Name: t.Name, Tag: t.TagOrDefault(), Digest: t.Digest, Manifest: text}
	image = store.Tree{Kind: store.TreeTemplates, Name: digestOf(t.Digest), Host: l.common.Host, Bytes: t.SizeBytes, At: t.CreatedAt, Record: text}
	return n, image, nil
}

// recordLater is record for something that is done here already: while the store is away, it
// is told at the next comparison.
func (l *Library) recordLater(ctx context.Context, tagged ...*bothy.Template) {
	if err := l.record(ctx, tagged...); err != nil {
		l.common.Log.Warn("the other hosts will be told later of a template", "template", tagged[0].Ref(), "error", err)
	}
}

// unrecord tells the store that names were removed, before they are.
func (l *Library) unrecord(ctx context.Context, name string, links ...string) error {
	if l.common == nil || len(links) == 0 {
		return nil
	}
	var gone []store.TemplateName
	for _, link := range links {
		gone = append(gone, store.TemplateName{Project: l.project, Name: name, Tag: tagName(link), Manifest: []byte("{}")})
	}
	if err := l.common.Store.NameTemplates(ctx, gone, nil, false); err != nil {
		return err
	}
	return l.common.refresh(ctx)
}

// tagName is the tag that a link is.
func tagName(link string) string {
	if link == currentName {
		return bothy.DefaultTag
	}
	return tagOf(link)
}

// key is that of one of this library's own names.
func (l *Library) key(name, link string) nameKey { return nameKey{l.project, name, tagName(link)} }

// Sync compares the names in the folder with those of the store. What only the folder has, and
// what was changed there by others than servers, goes to the store; what the store records as
// removed goes from the folder. Nothing goes because the store has never heard of it.
func (l *Library) Sync(ctx context.Context) error {
	s := l.common
	if s == nil {
		return nil
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	before, err := s.readState()
	if err != nil {
		return err
	}
	base := map[nameKey]store.TemplateName{}
	for _, n := range before {
		base[nameKey{n.Project, n.Name, n.Tag}] = n
	}
	if err := s.refresh(ctx); err != nil {
		return err
	}
	all, err := l.everything()
	if err != nil {
		return err
	}
	var errs []error
	for _, at := range all {
		errs = append(errs, at.syncOwn(ctx, base))
	}
	errs = append(errs, s.refresh(ctx), s.writeState())
	return errors.Join(errs...)
}

// syncOwn is Sync for one library. base is what the store had when the two were compared last.
func (l *Library) syncOwn(ctx context.Context, base map[nameKey]store.TemplateName) error {
	names, err := l.folders()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		for _, link := range l.links(name) {
			target, err := os.Readlink(filepath.Join(l.home(name), link))
			if err != nil {
				continue // moved on just now
			}
			here := digestPrefix + target
			k := l.key(name, link)
			row, known := l.common.of(k)
			was, compared := base[k]
			changedHere := compared && was.Digest != here
			switch {
			case known && row.digest == here:
			case !known, changedHere && row.digest == was.Digest, changedHere && row.digest == "":
				errs = append(errs, l.give(ctx, name, link, target, row.version))
			case row.digest == "":
				errs = append(errs, l.dropLink(ctx, name, link, target))
			}
		}
	}
	return errors.Join(errs...)
}

// give tells the store of a name that it does not have like this, unless it was changed
// meanwhile.
func (l *Library) give(ctx context.Context, name, link, version string, known int64) error {
	t, err := l.loadPath(name, filepath.Join(l.home(name), version))
	if err != nil {
		return nil // damaged, as whoever asks for it is told
	}
	if info, err := os.Stat(t.RootFS); err != nil || info.Size() != t.SizeBytes {
		return nil
	}
	t.Name, t.Tag, t.Project = name, tagOf(link), l.project
	n, image, err := l.asNamed(t)
	if err != nil {
		return err
	}
	n.Version = known
	if err := l.common.Store.NameTemplates(ctx, []store.TemplateName{n}, []store.Tree{image}, true); err != nil {
		return err
	}
	l.common.Log.Info("a template of this host is one of all hosts now", "template", t.Ref())
	if l.common.Published != nil {
		l.common.Published(t.Digest)
	}
	return nil
}

// dropLink removes a name that another host has removed, unless somebody gives it here now.
func (l *Library) dropLink(ctx context.Context, name, link, target string) error {
	unlock, free, err := l.tryLock(name)
	if err != nil || !free {
		return err
	}
	defer unlock()
	path := filepath.Join(l.home(name), link)
	if now, err := os.Readlink(path); err != nil || now != target {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.common.Log.Info("a template was removed by another host", "template", name, "tag", tagName(link))
	err = l.collect(ctx, name)
	_ = os.Remove(l.home(name)) // where nothing is left of it
	return err
}

// readState reads what the store had when it was compared last.
func (s *common) readState() (names []store.TemplateName, err error) {
	text, err := os.ReadFile(s.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &names)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.State, err)
	}
	return names, nil
}

func (s *common) writeState() error {
	names := []store.TemplateName{}
	s.mu.Lock()
	for k, row := range s.names {
		n := store.TemplateName{Project: k.project, Name: k.name, Tag: k.tag, Digest: row.digest, Version: row.version}
		if row.template != nil {
			text, err := sharedRecord(row.template)
			if err != nil {
				s.mu.Unlock()
				return err
			}
			n.Manifest = text
		}
		names = append(names, n)
	}
	s.mu.Unlock()
	slices.SortFunc(names, func(a, b store.TemplateName) int {
		return strings.Compare(a.Project+" "+a.Name+" "+a.Tag, b.Project+" "+b.Name+" "+b.Tag)
	})
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(s.State); err == nil && bytes.Equal(old, text) {
		return nil
	}
	draft := s.State + ".new"
	if err := os.WriteFile(draft, text, 0o600); err != nil {
		return err
	}
	if err := syncPath(draft); err != nil {
		return err
	}
	return os.Rename(draft, s.State)
}
