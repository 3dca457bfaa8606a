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
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// commonStore is an in-memory store that hosts share.
type commonStore struct {
	store.Shared
	mu    sync.Mutex
	names map[nameKey]store.TemplateName
	trees map[string]store.Tree
	last  int64
	away  error
}

func newCommonStore() *commonStore {
	return &commonStore{names: map[nameKey]store.TemplateName{}, trees: map[string]store.Tree{}}
}

func (s *commonStore) TemplateNames(_ context.Context, after int64) (list []store.TemplateName, newest int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.names {
		if n.Version > after {
			list = append(list, n)
		}
	}
	return list, s.last, s.away
}

func (s *commonStore) TemplateVersion(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.away
}

func (s *commonStore) NameTemplates(_ context.Context, names []store.TemplateName, images []store.Tree, how store.Naming) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return s.away
	}
	if how.Quota > 0 {
		used := int64(0)
		for _, n := range s.names {
			if n.Project != names[0].Project {
				continue
			}
			used += s.trees[digestOf(n.Digest)].Bytes
		}
		if used+images[0].Bytes > how.Quota {
			return &store.OverQuota{Used: used}
		}
	}
	for _, i := range images {
		if _, ok := s.trees[i.Name]; !ok {
			s.trees[i.Name] = i
		}
	}
	for _, n := range names {
		k := nameKey{n.Project, n.Name, n.Tag}
		if how.Unchanged && s.names[k].Version != n.Version {
			continue
		}
		s.last++
		n.Version = s.last
		s.names[k] = n
	}
	return nil
}

func (s *commonStore) Tree(_ context.Context, kind, name string) (*store.Tree, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.trees[name]
	if !ok || kind != store.TreeTemplates {
		return nil, bothy.Errorf(bothy.CodeNotFound, "no such tree")
	}
	return &t, s.away
}

func (s *commonStore) setAway(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

// hostsOf are libraries of hosts that share a store and fetch images from each other.
type hostsOf struct {
	t   *testing.T
	db  *commonStore
	all map[string]*Library
	// damage changes a file that was fetched.
	damage  func(path string)
	fetches int
	mu      sync.Mutex
}

func newHostsOf(t *testing.T, db *commonStore) *hostsOf {
	return &hostsOf{t: t, db: db, all: map[string]*Library{}}
}

func (h *hostsOf) opts(name, home string) Options {
	return Options{Shared: &Shared{Store: h.db, Host: name, State: filepath.Join(home, "templates.json"), Fetch: h.fetch}}
}

// join adds a host with an empty folder.
func (h *hostsOf) join(name string) *Library {
	home := h.t.TempDir()
	l := NewLibrary(filepath.Join(home, "templates"), h.opts(name, home))
	h.all[name] = l
	return l
}

// again restarts a host.
func (h *hostsOf) again(name string) *Library {
	was := h.all[name]
	l := NewLibrary(was.dir, h.opts(name, filepath.Dir(was.dir)))
	h.all[name] = l
	return l
}

func (h *hostsOf) fetch(ctx context.Context, t *store.Template, to string) error {
	h.mu.Lock()
	h.fetches++
	h.mu.Unlock()
	for _, l := range h.all {
		f, err := l.OpenShared(t.Digest)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		defer f.Close()
		out, err := os.Create(to)
		if err != nil {
			return err
		}
		defer out.Close()
		_, err = io.Copy(out, f)
		if h.damage != nil {
			h.damage(to)
		}
		return err
	}
	return bothy.Errorf(bothy.CodeStore, "no host has it")
}

// A template of one host is available on all, with its tags, to its project alone. A host fetches the
// image once for concurrent callers, and again if it has lost the image.
func TestHostsShareTemplates(t *testing.T) {
	h := newHostsOf(t, newCommonStore())
	one, two := h.join("one"), h.join("two")
	all, red := project(t, bothy.DefaultProject), project(t, "red")
	made := other(t, one, "content")
	own := adopted(t, one, red, "app:v1", made)
	list, err := two.Templates(all)
	if must(t, err); names(list) != "/other " {
		t.Errorf("the other host lists %s", names(list))
	}
	if list, err = two.Templates(red); err != nil || names(list) != "red/app:v1 /other " {
		t.Errorf("the other host lists %s, %v", names(list), err)
	}
	if _, err := two.LookupFor(t.Context(), "blue", "app:v1"); bothy.ErrorCode(err) != bothy.CodeTemplateNotFound {
		t.Error("another project finds the template:", err)
	}
	var asked sync.WaitGroup
	for range 8 {
		asked.Go(func() {
			got, err := two.LookupFor(t.Context(), "red", "app:v1")
			if err != nil || got.Digest != own.Digest || sumOf(t, got.RootFS) != own.Digest {
				t.Errorf("%+v %v", got, err)
			}
		})
	}
	asked.Wait()
	if h.fetches != 1 {
		t.Errorf("the image was fetched %d times", h.fetches)
	}
	// Another template with the same image needs no fetch.
	if got, err := two.LookupFor(t.Context(), "", "other"); err != nil || sumOf(t, got.RootFS) != made.Digest || h.fetches != 1 {
		t.Errorf("%+v %v, fetched %d times", got, err, h.fetches)
	}
	if used, err := two.UsedBy("red"); err != nil || used != own.SizeBytes {
		t.Errorf("the project's templates take %d bytes, %v", used, err)
	}
	must(t, os.RemoveAll(two.dir))
	if got, err := two.LookupFor(t.Context(), "red", own.Digest); err != nil || sumOf(t, got.RootFS) != own.Digest {
		t.Errorf("by digest: %+v %v", got, err)
	}
	// A tag that is moved on one host moves on all, and the old image is still found by its digest.
	later := other(t, one, "later")
	if got, err := two.LookupFor(t.Context(), "", "other"); err != nil || got.Digest != later.Digest {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := two.LookupFor(t.Context(), "", made.Digest); err != nil {
		t.Error("an image without a tag:", err)
	}
	if _, err := two.TagTemplate(all, "other", []string{"v9"}); err != nil {
		t.Error(err)
	}
	if got, err := one.Template(all, "other:v9"); err != nil || got.Digest != later.Digest {
		t.Errorf("%+v %v", got, err)
	}
}

// A fetched image is checked against its digest, and a damaged one leaves no files.
func TestDamagedImagesAreRefused(t *testing.T) {
	h := newHostsOf(t, newCommonStore())
	one, two := h.join("one"), h.join("two")
	made := other(t, one, "content")
	h.damage = func(path string) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt([]byte{1, 2, 3}, 100)
		must(t, errors.Join(err, f.Close()))
	}
	_, err := two.LookupFor(t.Context(), "", "other")
	fails(t, err, bothy.CodeTemplateInvalid)
	h.damage = nil
	if got, err := two.LookupFor(t.Context(), "", "other"); err != nil || sumOf(t, got.RootFS) != made.Digest {
		t.Errorf("%+v %v", got, err)
	}
	must(t, os.Truncate(filepath.Join(one.dir, "other", digestOf(made.Digest), imageName), 100))
	three := h.join("three")
	delete(h.all, "two")
	if _, err := three.LookupFor(t.Context(), "", "other"); err == nil {
		t.Error("a damaged image was accepted")
	}
	if left, _ := filepath.Glob(filepath.Join(three.dir, ".build", "*")); len(left) > 0 {
		t.Errorf("files are left: %q", left)
	}
}

// A host that was unavailable loses names that were removed meanwhile, and keeps those it made. An
// empty store takes the names of the hosts.
func TestAnUnavailableHostDoesNotRestoreRemovedNames(t *testing.T) {
	h := newHostsOf(t, newCommonStore())
	one, two := h.join("one"), h.join("two")
	operator := project(t, bothy.DefaultProject)
	first := other(t, one, "content")
	for _, name := range []string{"kept", "gone", "again"} {
		adopted(t, one, operator, name, first)
		_, err := two.LookupFor(t.Context(), "", name)
		must(t, err)
	}
	must(t, errors.Join(one.Sync(t.Context()), two.Sync(t.Context())))
	must(t, one.RemoveTemplate(operator, "gone"))
	must(t, one.RemoveTemplate(operator, "again"))
	two = h.again("two") // its folder is unchanged
	if links := two.links("gone"); len(links) == 0 {
		t.Fatal("the test needs a host that has not seen the removal")
	}
	// Without the store, a host still has what it had.
	h.db.setAway(errors.New("the store is unavailable"))
	if _, err := two.LookupFor(t.Context(), "", "kept"); err != nil {
		t.Error(err)
	}
	if err := two.RemoveTemplate(operator, "kept"); err == nil {
		t.Error("a template was removed although the other hosts cannot be told")
	}
	if err := two.Sync(t.Context()); err == nil {
		t.Error("a sync without the store returned no error")
	}
	adopted(t, two, operator, "again", other(t, two, "made while the store was unavailable"))
	h.db.setAway(nil)
	must(t, two.Sync(t.Context()))
	for _, l := range []*Library{one, two} {
		if list, err := l.Templates(operator); err != nil || names(list) != "/again /kept /other " {
			t.Errorf("the templates are %s, %v", names(list), err)
		}
	}
	if links := two.links("gone"); len(links) > 0 {
		t.Errorf("the folder still has %q", links)
	}
	// An empty store.
	empty := newCommonStore()
	h.db = empty
	one, two = h.again("one"), h.again("two")
	must(t, errors.Join(two.Sync(t.Context()), one.Sync(t.Context())))
	if list, err := one.Templates(operator); err != nil || names(list) != "/again /kept /other " {
		t.Errorf("with a new store the templates are %s, %v", names(list), err)
	}
}

// app returns the digest of the template "app" in the store.
func (h *hostsOf) app() string {
	h.db.mu.Lock()
	defer h.db.mu.Unlock()
	return h.db.names[nameKey{"", "app", bothy.DefaultTag}].Digest
}

// A host whose folder is older than the store does not overwrite the store.
func TestAStaleHostDoesNotOverwriteTheStore(t *testing.T) {
	h := newHostsOf(t, newCommonStore())
	one, two := h.join("one"), h.join("two")
	operator := project(t, bothy.DefaultProject)
	adopted(t, one, operator, "app", other(t, one, "content"))
	if _, err := two.LookupFor(t.Context(), "", "app"); err != nil {
		t.Fatal(err)
	}
	must(t, errors.Join(one.Sync(t.Context()), two.Sync(t.Context())))
	newer := adopted(t, one, operator, "app", other(t, one, "later"))
	for range 3 {
		must(t, two.Sync(t.Context()))
		if has := h.app(); has != newer.Digest {
			t.Fatal("the store was overwritten with", has)
		}
	}
	two = h.again("two")
	must(t, two.Sync(t.Context()))
	if got, err := two.Template(operator, "app"); err != nil || got.Digest != newer.Digest || h.app() != newer.Digest {
		t.Errorf("%+v %v", got, err)
	}
	// A change that was made without a server applies to all hosts.
	alone := NewLibrary(two.dir, Options{})
	by := adopted(t, alone, operator, "app", other(t, alone, "by hand"))
	must(t, errors.Join(two.Sync(t.Context()), one.Sync(t.Context())))
	if got, err := one.Template(operator, "app"); err != nil || got.Digest != by.Digest {
		t.Errorf("%+v %v", got, err)
	}
}

// A name that this server put in the folder itself is not published again after another host removed
// it.
func TestAHostDoesNotRestoreWhatItMadeOrFetched(t *testing.T) {
	operator := project(t, bothy.DefaultProject)
	for how, move := range map[string]func(t *testing.T, one, two *Library){
		"fetched": func(t *testing.T, one, two *Library) {
			adopted(t, one, operator, "app", other(t, one, "later"))
			if _, err := two.LookupFor(t.Context(), "", "app"); err != nil {
				t.Fatal(err)
			}
		},
		"made": func(t *testing.T, one, two *Library) { adopted(t, two, operator, "app", other(t, two, "later")) },
		"tagged": func(t *testing.T, one, two *Library) {
			adopted(t, two, operator, "app:v2", other(t, two, "later"))
			if _, err := two.TagTemplate(operator, "app:v2", []string{bothy.DefaultTag}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			h := newHostsOf(t, newCommonStore())
			one, two := h.join("one"), h.join("two")
			adopted(t, one, operator, "app", other(t, one, "content"))
			if _, err := two.LookupFor(t.Context(), "", "app"); err != nil {
				t.Fatal(err)
			}
			must(t, errors.Join(one.Sync(t.Context()), two.Sync(t.Context())))
			move(t, one, two)
			must(t, one.RemoveTemplate(operator, "app"))
			two = h.again("two") // killed before its next sync
			if links := two.links("app"); len(links) == 0 {
				t.Fatal("the test needs a host that has not seen the removal")
			}
			must(t, errors.Join(two.Sync(t.Context()), two.Sync(t.Context())))
			if has, links := h.app(), two.links("app"); has != "" || len(links) > 0 {
				t.Errorf("the store has %q, and the folder %q", has, links)
			}
		})
	}
}

// slowStore answers when it is allowed to.
type slowStore struct {
	*commonStore
	asked  chan struct{}
	answer chan struct{}
}

func (s *slowStore) TemplateVersion(ctx context.Context) (int64, error) {
	s.asked <- struct{}{}
	select {
	case <-s.answer:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return s.commonStore.TemplateVersion(ctx)
}

// Callers can stop waiting for a slow store, listings use what is known, and an answer is shared only
// with callers that asked before its query was sent.
func TestASlowStoreBlocksNobody(t *testing.T) {
	slow := &slowStore{newCommonStore(), make(chan struct{}, 99), make(chan struct{})}
	home := t.TempDir()
	l := NewLibrary(filepath.Join(home, "templates"), Options{Shared: &Shared{Store: slow, Host: "one", State: filepath.Join(home, "templates.json")}})
	must(t, l.common.refresh(t.Context())) // the first refresh reads all names
	first := make(chan error, 1)
	go func() { first <- l.common.refresh(t.Context()) }()
	<-slow.asked
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := l.common.refresh(gone); !errors.Is(err, context.Canceled) {
		t.Error("a cancelled caller waited:", err)
	}
	if _, err := l.Templates(project(t, bothy.DefaultProject)); err != nil {
		t.Error(err)
	}
	must(t, slow.NameTemplates(t.Context(), []store.TemplateName{{Name: "app", Tag: "v1", Manifest: []byte("{}")}}, nil, store.Naming{}))
	var later sync.WaitGroup
	for range 8 {
		later.Go(func() {
			if err := l.common.refresh(t.Context()); err != nil {
				t.Error(err)
			}
			if _, known := l.common.of(nameKey{"", "app", "v1"}); !known {
				t.Error("the answer is older than the question")
			}
		})
	}
	close(slow.answer)
	must(t, <-first)
	later.Wait()
}

// Finding the rows of one name does not scan the others.
func TestNamesAreFoundByName(t *testing.T) {
	home := t.TempDir()
	l := NewLibrary(filepath.Join(home, "templates"), Options{Shared: &Shared{Store: newCommonStore(), State: filepath.Join(home, "templates.json")}})
	for i := range 50 {
		for _, project := range []string{"", "red"} {
			l.common.take(store.TemplateName{Project: project, Name: fmt.Sprint("app", i), Tag: "v1"})
		}
	}
	asked := 0
	found := l.common.withName("red", "app7", func(nameKey, sharedName) bool { asked++; return true })
	if _, ok := found[nameKey{"red", "app7", "v1"}]; asked != 1 || len(found) != 1 || !ok {
		t.Errorf("%d rows were looked at for %v", asked, found)
	}
	if n := len(l.common.with("red", func(nameKey, sharedName) bool { return true })); n != 50 {
		t.Errorf("the project has %d templates", n)
	}
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	must(t, err)
	return digestPrefix + hex.EncodeToString(h.Sum(nil))
}

// The store enforces the quota even if a host has not yet seen what another one published.
func TestTheQuotaOfTemplatesAppliesToAllHosts(t *testing.T) {
	h := newHostsOf(t, newCommonStore())
	one, two := h.join("one"), h.join("two")
	made, more := other(t, one, "one"), other(t, two, "two")
	bound := func(context.Context, string) (int64, error) { return max(made.SizeBytes, more.SizeBytes), nil }
	one.opts.Quota, two.opts.Quota = bound, bound
	two.opts.InUse = func(context.Context, string, string, map[string]bool) (bool, error) { return false, nil }
	red := project(t, "red")
	must(t, one.Adopt(red, &store.Template{Template: bothy.Template{Version: bothy.ManifestVersion, Name: "app"}}, made.RootFS))
	fails(t, two.Adopt(red, &store.Template{Template: bothy.Template{Version: bothy.ManifestVersion, Name: "more"}}, more.RootFS), bothy.CodeQuota, "bothy template rm")
	if left, err := filepath.Glob(filepath.Join(two.of("red").home("more"), "*", imageName)); err != nil || len(left) != 0 {
		t.Errorf("the image that was refused is still there: %v %v", left, err)
	}
	two.look(t.Context())
	if used, err := two.UsedBy("red"); err != nil || used != made.SizeBytes {
		t.Errorf("%d bytes are used, %v", used, err)
	}
}
