package depot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template"
)

// sharedTrees are the records of trees that hosts share.
type sharedTrees struct {
	store.Shared
	mu  sync.Mutex
	all map[string]store.Tree
}

func (r *sharedTrees) Tree(_ context.Context, kind, name string) (*store.Tree, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.all[kind+"/"+name]
	if !ok {
		return nil, bothy.Errorf(bothy.CodeNotFound, "there is no tree %s/%s", kind, name)
	}
	return &t, nil
}

func (r *sharedTrees) Trees(_ context.Context, kind string) (all []store.Tree, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.all {
		if t.Kind == kind {
			all = append(all, t)
		}
	}
	return all, nil
}

func (r *sharedTrees) PutTree(_ context.Context, t store.Tree) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[t.Kind+"/"+t.Name] = t
	return nil
}

func (r *sharedTrees) SetTreeStored(_ context.Context, kind, name string, at *time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.all[kind+"/"+name]
	t.StoredAt = at
	r.all[kind+"/"+name] = t
	return nil
}

func (r *sharedTrees) SetTreeNeeded(ctx context.Context, kind, name string, needed bool) error {
	return r.change(kind, name, func(o *oneTree) error { return o.SetTreeNeeded(ctx, kind, name, needed) })
}

func (r *sharedTrees) MarkTreeDeleting(ctx context.Context, kind, name string, before time.Time) (marked bool, _ error) {
	return marked, r.change(kind, name, func(o *oneTree) (err error) {
		marked, err = o.MarkTreeDeleting(ctx, kind, name, before)
		return err
	})
}

func (r *sharedTrees) change(kind, name string, do func(*oneTree) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &oneTree{t: r.all[kind+"/"+name]}
	err := do(o)
	r.all[kind+"/"+name] = o.t
	return err
}

func (*sharedTrees) TemplateNames(context.Context, int64) ([]store.TemplateName, int64, error) {
	return nil, 0, nil
}

// storingHosts are two hosts that share records and object storage. The first has a tree of each
// kind.
type storingHosts struct {
	t        *testing.T
	objects  *s3test.Server
	one, two *Depot
	shared   *sharedTrees
	// files are the first host's files with the content of the trees, by kind.
	files map[string]string
	// trees are what the bucket has of each kind once it is uploaded.
	trees map[string]string
}

// places of buckets are in no database here.
type onePlace struct {
	mu  sync.Mutex
	all []s3.Place
}

func (d *onePlace) Places(context.Context) ([]s3.Place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all), nil
}

func (d *onePlace) AddPlace(_ context.Context, p s3.Place) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, p)
	return nil
}

func (d *onePlace) UsePlace(_ context.Context, p s3.Place) (s3.Place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.Used = true
	d.all = []s3.Place{p}
	return p, nil
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func newStoringHosts(t *testing.T) *storingHosts {
	h := &storingHosts{
		t: t, objects: s3test.Start(t), shared: &sharedTrees{all: map[string]store.Tree{}},
		files: map[string]string{}, trees: map[string]string{},
	}
	url, known := h.objects.Bucket(t, "bothy"), &onePlace{}
	records := &recordsOf{snapshots: []*bothy.Snapshot{{ID: "snpone", SandboxID: "sbx", Durable: bothy.DurableStore}}}
	h.one = h.host("one", url, known, records, slog.DiscardHandler)
	h.two = h.host("two", url, known, records, slog.DiscardHandler)
	return h
}

func (h *storingHosts) host(name, url string, known s3.Places, records *recordsOf, log slog.Handler) *Depot {
	t := h.t
	home := t.TempDir()
	at, err := s3.ParseLocation(url)
	must(t, err)
	bucket, err := s3.OpenBucket(at)
	must(t, err)
	must(t, bucket.Claim(t.Context(), s3.Claim{Owner: "us", Places: known}))
	s := &Depot{
		Host: name, Home: home, Folder: filepath.Join(home, "templates"), Bucket: bucket, Records: h.shared, Store: records, Log: slog.New(log),
		NeededBuilds: noBuilds, OnDuty: func() bool { return true }, Doubtful: func() bool { return false },
	}
	s.Library = template.NewLibrary(s.Folder, template.Options{})
	s.Builds, err = builds.Open(filepath.Join(home, "engines"), builds.Options{})
	must(t, err)
	blobs, err := s3.Open(filepath.Join(home, "snapshots"), bucket, s3.Options{
		Kind: "snapshots", State: filepath.Join(home, "objects", "snapshots"), Named: s.Named, Verify: VerifySnapshot, Log: s.Log,
	})
	must(t, err)
	t.Cleanup(blobs.Close)
	s.Blobs = blobs
	return s
}

func noBuilds(context.Context) (map[string]int, error) { return nil, nil }

// incompressible returns bytes that cannot be compressed, more than an index keeps.
func incompressible(seed byte) []byte {
	b := make([]byte, 100<<10)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// fill gives the first host a tree of each kind.
func (h *storingHosts) fill() {
	t, s, ctx := h.t, h.one, h.t.Context()
	image := incompressible(1)
	sum := sha256.Sum256(image)
	digest := hex.EncodeToString(sum[:])
	dir := filepath.Join(s.Folder, "mine", digest)
	record, err := json.Marshal(store.Template{Template: bothy.Template{Name: "mine", Version: bothy.ManifestVersion, Digest: digestPrefix + digest, SizeBytes: int64(len(image))}})
	must(t, err)
	h.files[store.TreeTemplates], h.trees[store.TreeTemplates] = filepath.Join(dir, imageFile), digest
	must(t, os.MkdirAll(dir, 0o755), os.WriteFile(h.files[store.TreeTemplates], image, 0o644), os.WriteFile(filepath.Join(dir, "manifest.json"), record, 0o644))
	must(t, h.shared.PutTree(ctx, store.Tree{Kind: store.TreeTemplates, Name: digest, Host: "one", Record: record}))

	program := filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(program, incompressible(2), 0o755))
	held, err := s.Builds.Put(builds.Build{Name: "build", Engine: "gvisor"}, []builds.Source{{From: program, Role: "sentry"}})
	must(t, err)
	h.files[store.TreeEngines], h.trees[store.TreeEngines] = held.Path("sentry"), "build"
	must(t, s.putBuild(ctx, held.Build))

	seal := func(d interface {
		Dir() string
		Commit(context.Context) error
	}, seed byte) {
		must(t, os.MkdirAll(filepath.Join(d.Dir(), snapshot.MemoryDir), 0o755), os.WriteFile(filepath.Join(d.Dir(), snapshot.MemoryDir, "pages"), incompressible(seed), 0o600))
		must(t, snapshot.Seal(ctx, d.Dir(), &snapshot.Manifest{ID: "x"}), d.Commit(ctx))
	}
	saved, err := s.Blobs.Create(ctx, "snpone")
	must(t, err)
	seal(saved, 4)
	h.files["snapshots"], h.trees["snapshots"] = filepath.Join(s.Home, "snapshots", "snpone", snapshot.MemoryDir, "pages"), "snpone"
}

// upload has the first host upload what it has.
func (h *storingHosts) upload() {
	must(h.t, h.one.upload(h.t.Context()))
	blobs := h.one.Blobs.(*s3.Store)
	blobs.Keep("snpone")
	_ = blobs.WaitKept(h.t.Context(), "snpone")
}

// stored are the objects of a kind.
func (h *storingHosts) stored(kind string) map[string]string {
	all := map[string]string{}
	for _, key := range h.objects.Objects(h.t, "bothy") {
		if strings.HasPrefix(key, kind+"/") {
			all[key] = h.objects.Get(h.t, "bothy", key)
		}
	}
	return all
}

// large is the object of the piece of a kind that is not in its index.
func (h *storingHosts) large(kind string) (key string) {
	h.t.Helper()
	for k, data := range h.stored(kind) {
		if len(data) >= 100<<10 && !strings.HasSuffix(k, "index.json") {
			return k
		}
	}
	h.t.Fatalf("no piece of %s is stored", kind)
	return ""
}

func (h *storingHosts) damage(how, key string) {
	was := []byte(h.objects.Get(h.t, "bothy", key))
	switch how {
	case "a flipped bit":
		was[len(was)/2] ^= 1
		h.objects.Put(h.t, "bothy", key, string(was))
	case "cut short":
		h.objects.Put(h.t, "bothy", key, string(was[:len(was)/2]))
	case "missing":
		must(h.t, h.objects.Remove("bothy", key))
	}
}

// What the object storage has damaged or lost comes from another host, which uploads it again.
func TestDamagedTreesComeFromAnotherHost(t *testing.T) {
	h := newStoringHosts(t)
	h.fill()
	h.upload()
	away := h.connect()
	for _, kind := range treeKinds {
		was := h.stored(kind)
		for _, how := range []string{"a flipped bit", "cut short", "missing"} {
			for part, key := range map[string]string{"piece": h.large(kind), "index": kind + "/" + h.trees[kind] + "/index.json"} {
				h.damage(how, key)
				if err := h.fetch(kind); err != nil {
					t.Fatalf("%s of %s, %s: %v", part, kind, how, err)
				}
				if h.record(kind).StoredAt != nil {
					t.Errorf("%s of %s, %s: it counts as stored", part, kind, how)
				}
				must(t, h.one.upload(t.Context()))
				if h.record(kind).StoredAt == nil || !maps.Equal(h.stored(kind), was) {
					t.Errorf("%s of %s, %s: it was not uploaded again", part, kind, how)
				}
			}
		}
	}

	// While no other host has a copy, it stays as it is, and is whole once the object is restored.
	away()
	for _, kind := range treeKinds {
		key := h.large(kind)
		was := h.objects.Get(t, "bothy", key)
		h.damage("a flipped bit", key)
		if err := h.fetch(kind); bothy.ErrorCode(err) != bothy.CodeStore {
			t.Errorf("%s without a copy: %v", kind, err)
		}
		h.objects.Put(t, "bothy", key, was)
		if err := h.fetch(kind); err != nil {
			t.Errorf("%s, which was restored: %v", kind, err)
		}
	}
}

// clusterStore is store.Hosts under a name that none of its methods has.
type clusterStore interface{ store.Hosts }

// clusterOf is the view that a host has of its cluster.
type clusterOf struct {
	clusterStore
	self        string
	peers       []bothy.ClusterHost
	certificate *string
	key         *[]byte
}

func (c clusterOf) Self() string { return c.self }

func (c clusterOf) Peers(context.Context) ([]bothy.ClusterHost, error) { return c.peers, nil }

func (c clusterOf) Authority(_ context.Context, create func() (string, []byte, error)) (_ string, _ []byte, err error) {
	if *c.certificate == "" {
		*c.certificate, *c.key, err = create()
	}
	return *c.certificate, *c.key, err
}

// openVault seals nothing.
type openVault struct{}

func (openVault) Seal(plain []byte, _ string) ([]byte, error) { return plain, nil }

func (openVault) Open(sealed []byte, _ string) ([]byte, error) { return sealed, nil }

// connect has the second host reach the first, until away is called.
func (h *storingHosts) connect() (away func()) {
	one := clusterOf{self: "one", certificate: new(string), key: new([]byte)}
	a, err := cluster.OpenAuthority(h.t.Context(), one, openVault{})
	must(h.t, err)
	none := http.NotFoundHandler()
	x := httptest.NewUnstartedServer(cluster.FromPeers(none, none, none, cluster.NewTrees(one, a, h.one.OpenFile)))
	x.TLS = a.Server()
	x.StartTLS()
	h.t.Cleanup(x.Close)
	two := one
	two.self, two.peers = "two", []bothy.ClusterHost{{Name: "one", Address: x.Listener.Addr().String(), State: bothy.HostUp}}
	a, err = cluster.OpenAuthority(h.t.Context(), two, openVault{})
	must(h.t, err)
	h.two.Trees = cluster.NewTrees(two, a, h.two.OpenFile)
	return x.Close
}

func (h *storingHosts) record(kind string) *store.Tree {
	h.t.Helper()
	r, err := h.shared.Tree(h.t.Context(), kind, h.trees[kind])
	must(h.t, err)
	return r
}

// fetch has the second host fetch the tree of a kind, and compares its checksums.
func (h *storingHosts) fetch(kind string) error {
	h.t.Helper()
	r := h.record(kind)
	names, err := treeFiles(r)
	must(h.t, err)
	var files []treeFile
	for _, name := range names {
		f, err := h.one.OpenFile(kind, r.Name, name)
		must(h.t, err)
		info, err := f.Stat()
		must(h.t, err, f.Close())
		files = append(files, treeFile{name, info.Size()})
	}
	dir := h.t.TempDir()
	if err := h.two.fetch(h.t.Context(), r, dir, files); err != nil {
		return err
	}
	return checkTree(h.t.Context(), r, dir)
}

// A file that is damaged on this host is not uploaded.
func TestDamagedFilesStayOnTheirHost(t *testing.T) {
	h := newStoringHosts(t)
	h.fill()
	for _, path := range h.files {
		data, err := os.ReadFile(path)
		must(t, err)
		data[len(data)/2] ^= 1
		must(t, os.WriteFile(path, data, 0o600))
	}
	log := bytes.Buffer{}
	h.one.Log = slog.New(slog.NewTextHandler(&log, nil))
	h.upload()
	h.upload()
	for kind := range h.files {
		if all := h.stored(kind); len(all) > 0 {
			t.Errorf("%s was uploaded: %v", kind, slices.Collect(maps.Keys(all)))
		}
		if kind == "snapshots" {
			continue
		}
		if n := strings.Count(log.String(), "kind="+kind+" "); n != 1 {
			t.Errorf("%d lines are about %s:\n%s", n, kind, log.String())
		}
		if r, err := h.shared.Tree(t.Context(), kind, h.trees[kind]); err != nil || r.StoredAt != nil {
			t.Errorf("%s counts as stored: %v", kind, err)
		}
	}
	if h.one.Blobs.(*s3.Store).Kept("snpone") {
		t.Error("the snapshot counts as stored")
	}
}
