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
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Shared configures how hosts share templates. Names are then those in the store, and the
// folder contains the images that this host has needed.
type Shared struct {
	Store store.Shared
	// Host is this host's name.
	Host string
	// State is a file with what the store and the folder had when they were last compared.
	State string
	// Fetch writes the image of a template to a file.
	Fetch func(ctx context.Context, t *store.Template, to string) error
	// Elsewhere reports whether an image can be fetched again: it is in the object storage, or
	// the host that published it has it and is up. Without it nothing is evicted.
	Elsewhere func(ctx context.Context, digest string) (bool, error)
	// UsedHere returns the digests of the images that this host uses.
	UsedHere func(ctx context.Context) (map[string]bool, error)
	// Now is the clock for the use of images; nil is the host's.
	Now func() time.Time
	Log *slog.Logger
}

// nameKey is a name with a tag.
type nameKey struct{ project, name, tag string }

// sharedName is the store's record of a name.
type sharedName struct {
	digest   string // empty if it was removed
	version  int64
	template *store.Template
}

// common are the names that hosts share. A library and those of its projects have one in
// common.
type common struct {
	Shared
	// syncing is held while the folder is compared with the store.
	syncing sync.Mutex

	mu sync.Mutex
	// names are by project, name and tag.
	names   map[string]map[string]map[string]sharedName
	version int64
	// read is set once the store was read.
	read bool
	// asking is the next query of the store, if one is in progress (busy).
	asking *asking
	busy   bool
	// fetches are the images that are being fetched.
	fetches map[string]*fetching
	// used is when the image in a folder was last used; evicting is held while images are
	// evicted.
	used     map[string]time.Time
	evicting sync.Mutex
	// compared is the content of the file State, and unread why that is unknown.
	compared compared
	unread   error
}

// compared is what the store and the folder had when they were last compared.
type compared struct {
	names []store.TemplateName
	// links are the known targets of a link: digests that it had, or that this server has set
	// since; "" means that it did not exist. With any other target, someone else has changed
	// it.
	links map[nameKey][]string
}

// asking is a query of changes, shared by all callers that arrive before it is sent.
type asking struct {
	done chan struct{}
	err  error
}

const (
	// askTimeout limits a query, and lookTimeout how long a caller waits that can do without.
	askTimeout  = 30 * time.Second
	lookTimeout = 2 * time.Second
)

func newCommon(o *Shared) *common {
	if o == nil {
		return nil
	}
	s := &common{Shared: *o, names: map[string]map[string]map[string]sharedName{}, fetches: map[string]*fetching{}, used: map[string]time.Time{}}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	// Until the store responds, assume that it still has what it had.
	s.compared, s.unread = s.readState()
	if s.unread != nil {
		s.Log.Warn("cannot read the state of the templates shared with other hosts", "error", s.unread)
	}
	for _, n := range s.compared.names {
		s.take(n)
	}
	return s
}

// sharedRecord is the record of a template in the store.
func sharedRecord(t *store.Template) ([]byte, error) { return json.Marshal(t) }

func sharedTemplate(n store.TemplateName) (*store.Template, error) {
	t := &store.Template{}
	if err := json.Unmarshal(n.Manifest, t); err != nil {
		return nil, err
	}
	if t.Version != bothy.ManifestVersion || t.Digest != n.Digest || !isDigest(t.Digest) || t.SizeBytes <= 0 {
		return nil, fmt.Errorf("its manifest has version %d, or belongs to another image", t.Version)
	}
	return t, nil
}

func isDigest(s string) bool {
	r, err := bothy.ParseTemplateRef(s)
	return err == nil && r.Name == "" && r.Digest != ""
}

// take records what the store has for a name. The caller holds mu, or has exclusive access.
func (s *common) take(n store.TemplateName) {
	row := sharedName{digest: n.Digest, version: n.Version}
	if n.Digest != "" {
		t, err := sharedTemplate(n)
		if err != nil {
			s.Log.Error("cannot use a template of the other hosts", "template", n.Name, "tag", n.Tag, "error", err)
			return
		}
		row.template = t
	}
	if s.names[n.Project] == nil {
		s.names[n.Project] = map[string]map[string]sharedName{}
	}
	if s.names[n.Project][n.Name] == nil {
		s.names[n.Project][n.Name] = map[string]sharedName{}
	}
	s.names[n.Project][n.Name][n.Tag] = row
}

// of returns the store's record of a name, and whether it is known.
func (s *common) of(k nameKey) (row sharedName, known bool) {
	if s == nil {
		return row, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	row, known = s.names[k.project][k.name][k.tag]
	return row, known
}

// with returns the store's names of a project that keep accepts.
func (s *common) with(project string, keep func(nameKey, sharedName) bool) map[nameKey]sharedName {
	found := map[nameKey]sharedName{}
	if s == nil {
		return found
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.names[project] {
		s.gather(found, project, name, keep)
	}
	return found
}

// withName is with for one name.
func (s *common) withName(project, name string, keep func(nameKey, sharedName) bool) map[nameKey]sharedName {
	found := map[nameKey]sharedName{}
	if s == nil {
		return found
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gather(found, project, name, keep)
	return found
}

// gather implements with and withName.
func (s *common) gather(found map[nameKey]sharedName, project, name string, keep func(nameKey, sharedName) bool) {
	for tag, row := range s.names[project][name] {
		if k := (nameKey{project, name, tag}); keep(k, row) {
			found[k] = row
		}
	}
}

// owners are the projects that have names.
func (s *common) owners() (list []string) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for project := range s.names {
		if project != "" {
			list = append(list, project)
		}
	}
	return list
}

// refresh reads what other hosts have changed before the call. Callers that arrive during a
// query, whose result may be too old for them, share the next one.
func (s *common) refresh(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	a := s.asking
	if a == nil {
		a = &asking{done: make(chan struct{})}
		s.asking = a
	}
	if !s.busy {
		s.busy = true
		go s.answer()
	}
	s.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answer queries the store until no caller waits.
func (s *common) answer() {
	for {
		s.mu.Lock()
		a := s.asking
		s.asking, s.busy = nil, a != nil
		s.mu.Unlock()
		if a == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		a.err = s.ask(ctx)
		cancel()
		close(a.done)
	}
}

func (s *common) ask(ctx context.Context) error {
	s.mu.Lock()
	at, read := s.version, s.read
	s.mu.Unlock()
	if read {
		newest, err := s.Store.TemplateVersion(ctx)
		if err != nil || newest == at {
			return err
		}
		if newest < at {
			read = false // a different store, or an older copy
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

// isKnown reports whether the store's names are known, even if outdated.
func (s *common) isKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read || len(s.names) > 0
}

// look is refresh for callers that can use outdated names while the store is unreachable or
// slow.
func (l *Library) look(ctx context.Context) {
	if l.common == nil {
		return
	}
	wait := ctx
	if l.common.isKnown() {
		var cancel func()
		wait, cancel = context.WithTimeout(ctx, lookTimeout)
		defer cancel()
	}
	if err := l.common.refresh(wait); err != nil && ctx.Err() == nil {
		l.common.Log.Debug("cannot read which templates other hosts have changed", "error", err)
	}
}

// record stores names that were set here. If their images exceed the quota, the error is a
// *store.OverQuota.
func (l *Library) record(ctx context.Context, quota int64, tagged ...*store.Template) error {
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
	err := l.common.Store.NameTemplates(context.WithoutCancel(ctx), names, images, store.Naming{Quota: quota})
	if err == nil {
		err = l.common.refresh(context.WithoutCancel(ctx))
	}
	return err
}

func (l *Library) asNamed(t *store.Template) (n store.TemplateName, image store.Tree, err error) {
	text, err := sharedRecord(t)
	if err != nil {
		return n, image, err
	}
	n = store.TemplateName{Project: l.project, Name: t.Name, Tag: t.TagOrDefault(), Digest: t.Digest, Manifest: text}
	image = store.Tree{Kind: store.TreeTemplates, Name: digestOf(t.Digest), Host: l.common.Host, Bytes: t.SizeBytes, At: t.CreatedAt, Record: text}
	return n, image, nil
}

// recordLater is record for changes that are made here in any case: if the store is
// unreachable, the next comparison stores them. It returns whether the store has them; the only
// error is a *store.OverQuota.
func (l *Library) recordLater(ctx context.Context, t *store.Template, quota int64) (told bool, err error) {
	err = l.record(ctx, quota, t)
	if over := (*store.OverQuota)(nil); errors.As(err, &over) {
		return false, over
	}
	if err != nil {
		l.common.Log.Warn("cannot publish a template to the other hosts; trying again later", "template", t.Ref(), "error", err)
	}
	return err == nil, nil
}

// point is relink for links whose image the store has under these names. That this server moves
// them is recorded first, so that they are not mistaken for changes by others.
func (l *Library) point(name, version string, links ...string) error {
	s := l.common
	if s != nil {
		if err := s.note(func(seen map[nameKey][]string) {
			for _, link := range links {
				k := l.key(name, link)
				if digest := digestPrefix + version; !slices.Contains(seen[k], digest) {
					seen[k] = append(slices.Clip(seen[k]), digest)
				}
			}
		}); err != nil {
			return err
		}
	}
	for _, link := range links {
		if err := relink(l.home(name), link, version); err != nil {
			return err
		}
		if s != nil {
			s.mu.Lock()
			s.compared.links[l.key(name, link)] = []string{digestPrefix + version}
			s.mu.Unlock()
		}
	}
	return nil
}

// note updates what is known of links.
func (s *common) note(change func(links map[nameKey][]string)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread != nil {
		return s.unread
	}
	if s.compared.links == nil {
		s.compared.links = map[nameKey][]string{}
	}
	change(s.compared.links)
	return s.writeState()
}

// unrecord records in the store that names are removed, before they are.
func (l *Library) unrecord(ctx context.Context, name string, links ...string) error {
	if l.common == nil || len(links) == 0 {
		return nil
	}
	var gone []store.TemplateName
	for _, link := range links {
		gone = append(gone, store.TemplateName{Project: l.project, Name: name, Tag: tagName(link), Manifest: []byte("{}")})
	}
	if err := l.common.Store.NameTemplates(ctx, gone, nil, store.Naming{}); err != nil {
		return err
	}
	return l.common.refresh(ctx)
}

// tagName is the tag of a link.
func tagName(link string) string {
	if link == currentName {
		return bothy.DefaultTag
	}
	return tagOf(link)
}

// key is that of one of this library's own names.
func (l *Library) key(name, link string) nameKey { return nameKey{l.project, name, tagName(link)} }

// Sync compares the names in the folder with those in the store. Names only in the folder, and
// links changed by others than servers, are added to the store. Names that the store records as
// removed are removed from the folder. A name is never removed only because the store does not
// know it.
func (l *Library) Sync(ctx context.Context) error {
	s := l.common
	if s == nil {
		return nil
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	if s.unread != nil {
		s.compared, s.unread = s.readState()
	}
	err := s.unread
	base := map[nameKey]string{}
	for _, n := range s.compared.names {
		base[nameKey{n.Project, n.Name, n.Tag}] = n.Digest
	}
	s.mu.Unlock()
	if err != nil {
		return err
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
	errs = append(errs, s.refresh(ctx))
	for _, at := range all {
		at.noteMissing()
	}
	names, err := s.sharedNames()
	errs = append(errs, err)
	if err == nil {
		s.mu.Lock()
		s.compared.names = names
		errs = append(errs, s.writeState())
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// syncOwn is Sync for one library. base are the digests that the store had at the last
// comparison.
func (l *Library) syncOwn(ctx context.Context, base map[nameKey]string) error {
	names, err := l.folders()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		for _, link := range l.links(name) {
			errs = append(errs, l.syncLink(ctx, name, link, base))
		}
	}
	return errors.Join(errs...)
}

// A comparison is the action for a link.
type comparison int

const (
	// asItWas needs no action, and seen is a link that was not compared yet.
	asItWas comparison = iota
	seen
	// given is added to the store, and dropped is removed from the folder.
	given
	dropped
)

// compare decides the action for a link. A link that is older than the store's is not a change
// made here.
func (l *Library) compare(name, link string, base map[nameKey]string) (what comparison, target string, known int64) {
	target, err := os.Readlink(filepath.Join(l.home(name), link))
	if err != nil {
		return asItWas, "", 0 // moved meanwhile
	}
	s, here, k := l.common, digestPrefix+target, l.key(name, link)
	row, has := s.of(k)
	s.mu.Lock()
	was, compared := s.compared.links[k]
	s.mu.Unlock()
	changedHere := compared && !slices.Contains(was, here)
	switch {
	case !has, row.digest != here && changedHere && (row.digest == "" || row.digest == base[k]):
		return given, target, row.version
	case row.digest == "":
		return dropped, target, 0
	case slices.Equal(was, []string{here}):
		return asItWas, target, 0
	}
	return seen, target, 0
}

func (l *Library) syncLink(ctx context.Context, name, link string, base map[nameKey]string) error {
	if what, _, _ := l.compare(name, link, base); what == asItWas {
		return nil
	}
	unlock, free, err := l.tryLock(name)
	if err != nil || !free {
		return err // the holder of the lock may be about to move it
	}
	defer unlock()
	what, target, known := l.compare(name, link, base)
	switch what {
	case asItWas:
		return nil
	case given:
		if done, err := l.give(ctx, name, link, target, known); err != nil || !done {
			return err
		}
	case dropped:
		if err := l.dropLink(ctx, name, link); err != nil {
			return err
		}
		target = ""
	}
	l.common.saw(l.key(name, link), target)
	return nil
}

// saw records a link, to be written with the rest.
func (s *common) saw(k nameKey, target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compared.links == nil {
		s.compared.links = map[nameKey][]string{}
	}
	if target != "" {
		target = digestPrefix + target
	}
	s.compared.links[k] = []string{target}
}

// noteMissing records which names of the store have no link in the folder.
func (l *Library) noteMissing() {
	s := l.common
	for k := range s.with(l.project, func(nameKey, sharedName) bool { return true }) {
		s.mu.Lock()
		was := s.compared.links[k]
		s.mu.Unlock()
		if slices.Equal(was, []string{""}) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(l.home(k.name), tagLink(k.tag))); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		s.mu.Lock()
		unchanged := slices.Equal(was, s.compared.links[k])
		s.mu.Unlock()
		if unchanged {
			s.saw(k, "")
		}
	}
}

// give adds a name to the store, unless it was changed meanwhile or the image is damaged. The
// caller holds the name's lock.
func (l *Library) give(ctx context.Context, name, link, version string, known int64) (done bool, err error) {
	t, err := l.loadPath(name, filepath.Join(l.home(name), version))
	if err != nil {
		return false, nil // damaged: looking it up reports that
	}
	if info, err := os.Stat(t.RootFS); err != nil || info.Size() != t.SizeBytes {
		return false, nil
	}
	t.Name, t.Tag, t.Project = name, tagOf(link), l.project
	n, image, err := l.asNamed(t)
	if err != nil {
		return false, err
	}
	n.Version = known
	if err := l.common.Store.NameTemplates(ctx, []store.TemplateName{n}, []store.Tree{image}, store.Naming{Unchanged: true}); err != nil {
		return false, err
	}
	l.common.Log.Info("published a template to the other hosts", "template", t.Ref())
	return true, nil
}

// dropLink removes a name that another host has removed. The caller holds the name's lock.
func (l *Library) dropLink(ctx context.Context, name, link string) error {
	if err := os.Remove(filepath.Join(l.home(name), link)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.common.Log.Info("removed a template that another host has removed", "template", name, "tag", tagName(link))
	err := l.collect(ctx, name)
	_ = os.Remove(l.home(name)) // succeeds only if it is empty
	return err
}

// state is the file format of compared.
type state struct {
	Names []store.TemplateName `json:"names"`
	Links []linkState          `json:"links"`
}

type linkState struct {
	Project string   `json:"project,omitempty"`
	Name    string   `json:"name"`
	Tag     string   `json:"tag"`
	Digests []string `json:"digests"`
}

// readState reads the state of the last comparison.
func (s *common) readState() (c compared, err error) {
	text, err := os.ReadFile(s.State)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	var from state
	if err == nil {
		err = json.Unmarshal(text, &from)
	}
	if err != nil {
		return c, fmt.Errorf("read %s: %w", s.State, err)
	}
	c = compared{from.Names, map[nameKey][]string{}}
	for _, l := range from.Links {
		c.links[nameKey{l.Project, l.Name, l.Tag}] = l.Digests
	}
	return c, nil
}

// sharedNames are the store's names, in order.
func (s *common) sharedNames() ([]store.TemplateName, error) {
	names := []store.TemplateName{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for project, own := range s.names {
		for name, tags := range own {
			for tag, row := range tags {
				n := store.TemplateName{Project: project, Name: name, Tag: tag, Digest: row.digest, Version: row.version}
				if row.template != nil {
					text, err := sharedRecord(row.template)
					if err != nil {
						return nil, err
					}
					n.Manifest = text
				}
				names = append(names, n)
			}
		}
	}
	slices.SortFunc(names, func(a, b store.TemplateName) int {
		return strings.Compare(a.Project+" "+a.Name+" "+a.Tag, b.Project+" "+b.Name+" "+b.Tag)
	})
	return names, nil
}

// writeState writes the state of the last comparison. The caller holds mu.
func (s *common) writeState() error {
	to := state{Names: s.compared.names, Links: []linkState{}}
	for k, digests := range s.compared.links {
		to.Links = append(to.Links, linkState{k.project, k.name, k.tag, digests})
	}
	slices.SortFunc(to.Links, func(a, b linkState) int {
		return strings.Compare(a.Project+" "+a.Name+" "+a.Tag, b.Project+" "+b.Name+" "+b.Tag)
	})
	text, err := json.Marshal(to)
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
