package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/lifecycle"
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
	one, two *Server
	shared   *sharedTrees
	// files are the first host's files with the content of the trees, by kind.
	files map[string]string
	// trees are what the bucket has of each kind once it is uploaded.
	trees map[string]string
	log   bytes.Buffer // of the second host
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
	h.two = h.host("two", url, known, records, slog.NewTextHandler(&h.log, nil))
	// The network between hosts is tested in package cluster.
	h.two.bucket.SetRepairs(s3.Repairs{
		OnDamage: func(d s3.Damage) { h.two.damaged(context.Background(), d) },
		Copies: func(ctx context.Context, p s3.Piece, good func([]byte) bool) error {
			if err := h.two.copies(ctx, p, good); err == nil || h.one == nil {
				return err
			}
			return h.one.copies(ctx, p, good)
		},
	})
	return h
}

func (h *storingHosts) host(name, url string, known s3.Places, records *recordsOf, log slog.Handler) *Server {
	t := h.t
	c := config.Config{Home: t.TempDir(), Blobs: url}
	c.Templates, c.Cluster.Name = filepath.Join(c.Home, "templates"), name
	bucket, err := openBucket(c)
	must(t, err)
	must(t, bucket.Claim(t.Context(), s3.Claim{Owner: "us", Places: known}))
	s := &Server{config: c, bucket: bucket, shared: h.shared, store: records, log: slog.New(log)}
	s.templates = template.NewLibrary(c.Templates, template.Options{Home: c.Home})
	s.builds, err = builds.Open(BuildsFolder(c), builds.Options{})
	must(t, err)
	blobs, err := s3.Open(filepath.Join(c.Home, "snapshots"), bucket, s3.Options{
		Kind: snapshotKind, State: objectState(c.Home), Named: s.namesSnapshot, Verify: verifySnapshot, Log: s.log,
	})
	must(t, err)
	t.Cleanup(blobs.Close)
	s.blobs = blobs
	s.lifecycle = lifecycle.New(lifecycle.Options{Store: &recordsOf{deleted: map[string]bool{"snpone": true}}, Blobs: blobs}) // it emits no events
	s.onDuty.Store(true)
	return s
}

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
	dir := filepath.Join(s.config.Templates, "mine", digest)
	record, err := json.Marshal(store.Template{Template: bothy.Template{Name: "mine", Version: bothy.ManifestVersion, Digest: digestPrefix + digest, SizeBytes: int64(len(image))}})
	must(t, err)
	h.files[store.TreeTemplates], h.trees[store.TreeTemplates] = filepath.Join(dir, imageFile), digest
	must(t, os.MkdirAll(dir, 0o755), os.WriteFile(h.files[store.TreeTemplates], image, 0o644), os.WriteFile(filepath.Join(dir, "manifest.json"), record, 0o644))
	must(t, h.shared.PutTree(ctx, store.Tree{Kind: store.TreeTemplates, Name: digest, Host: "one", Record: record}))

	program := filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(program, incompressible(2), 0o755))
	held, err := s.builds.Put(builds.Build{Name: "build", Engine: "gvisor"}, []builds.Source{{From: program, Role: "sentry"}})
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
	saved, err := s.blobs.Create(ctx, "snpone")
	must(t, err)
	seal(saved, 4)
	h.files[snapshotKind], h.trees[snapshotKind] = filepath.Join(s.config.Home, "snapshots", "snpone", snapshot.MemoryDir, "pages"), "snpone"
}

// upload has the first host upload what it has.
func (h *storingHosts) upload() {
	must(h.t, h.one.storeTrees(h.t.Context()))
	blobs := h.one.blobs.(*s3.Store)
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

// A host verifies trees of every kind and repairs them with the copies of another host, also their
// indexes. If there is no copy, it says which piece of what is lost, and what to do.
func TestScrubEveryKind(t *testing.T) {
	h := newStoringHosts(t)
	h.fill()
	h.upload()
	kinds := h.two.storedKinds()
	if len(kinds) != 3 || !slices.Equal(slices.Sorted(maps.Keys(h.trees)), slices.Sorted(slices.Values(kinds))) {
		t.Fatalf("kinds are %q", kinds)
	}
	damaged := int64(0)
	for _, how := range []string{"a flipped bit", "cut short", "missing"} {
		for _, part := range []string{"piece", "index"} {
			was := map[string]map[string]string{}
			for _, kind := range kinds {
				was[kind] = h.stored(kind)
				key := kind + "/" + h.trees[kind] + "/index.json"
				if part == "piece" {
					key = h.large(kind)
				}
				h.damage(how, key)
			}
			damaged++
			must(t, h.two.scrub(t.Context(), always))
			for _, kind := range kinds {
				if !maps.Equal(h.stored(kind), was[kind]) {
					t.Errorf("%s of %s, %s: it is not what it was", part, kind, how)
				}
				if n := h.two.bucket.Counts(kind); n.Damaged != damaged || n.Repaired != damaged || n.Checked < damaged {
					t.Errorf("%s of %s, %s: %+v", part, kind, how, n)
				}
			}
		}
	}
	for _, p := range h.two.objectStorage().Pieces {
		if n := h.two.bucket.Counts(p.Kind); p.Damaged != n.Damaged || p.Repaired != n.Repaired || p.Checked != n.Checked {
			t.Errorf("the metrics say %+v, the bucket %+v", p, n)
		}
	}

	h.one = nil
	h.log.Reset()
	was := map[string]map[string]string{}
	for _, kind := range kinds {
		h.damage("a flipped bit", h.large(kind))
		was[kind] = h.stored(kind)
	}
	must(t, h.two.scrub(t.Context(), always))
	for _, kind := range kinds {
		if !maps.Equal(h.stored(kind), was[kind]) {
			t.Errorf("%s without a copy: the bucket was changed", kind)
		}
		want := []string{"no host has a copy", "kind=" + kind, "object=" + kind + "/" + h.trees[kind], " at 0", remedies[kind]}
		if kind == store.TreeTemplates {
			want = append(want, "mine", imageFile)
		}
		if !slices.ContainsFunc(strings.Split(h.log.String(), "\n"), func(line string) bool {
			return !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(line, text) })
		}) {
			t.Errorf("no line has %q:\n%s", want, h.log.String())
		}
	}
	// What nothing needs any more is not verified.
	at := time.Now()
	h.shared.mu.Lock()
	for key, tree := range h.shared.all {
		tree.UnneededAt = &at
		h.shared.all[key] = tree
	}
	h.shared.mu.Unlock()
	if trees, err := h.two.storedTrees(t.Context()); err != nil || len(trees) != 1 {
		t.Errorf("to be verified are %v, %v", trees, err)
	}
}

// A file that is damaged on this host is not uploaded, and is not a copy to repair with. Once another
// host has uploaded an intact one, it is.
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
	h.one.log = slog.New(slog.NewTextHandler(&log, nil))
	h.upload()
	h.upload()
	for kind := range h.files {
		if all := h.stored(kind); len(all) > 0 {
			t.Errorf("%s was uploaded: %v", kind, slices.Collect(maps.Keys(all)))
		}
		if kind == snapshotKind {
			continue
		}
		if n := strings.Count(log.String(), "kind="+kind+" "); n != 1 {
			t.Errorf("%d lines are about %s:\n%s", n, kind, log.String())
		}
		if _, err := h.one.readPiece(t.Context(), cluster.Piece{Kind: kind, Name: h.trees[kind]}); !errors.Is(err, errSpoiled) {
			t.Errorf("the index of %s: %v", kind, err)
		}
		if r, err := h.shared.Tree(t.Context(), kind, h.trees[kind]); err != nil || r.StoredAt != nil {
			t.Errorf("%s counts as stored: %v", kind, err)
		}
	}
	if h.one.blobs.(*s3.Store).Kept("snpone") {
		t.Error("the snapshot counts as stored")
	}
}

// A host serves pieces of its trees alone.
func TestPiecesOfTrees(t *testing.T) {
	h := newStoringHosts(t)
	h.fill()
	for what, p := range map[string]cluster.Piece{
		"an unknown kind":     {Kind: "secrets", Name: "a", File: "secrets.key", Size: 1},
		"an unknown tree":     {Kind: store.TreeEngines, Name: "other", File: "x", Size: 1},
		"an unknown index":    {Kind: store.TreeTemplates, Name: "other"},
		"another file":        {Kind: store.TreeTemplates, Name: h.trees[store.TreeTemplates], File: "manifest.json", Size: 1},
		"a path that climbs":  {Kind: store.TreeEngines, Name: h.trees[store.TreeEngines], File: "../../secrets.key", Size: 1},
		"a golden snapshot":   {Kind: oldGoldens, Name: "a-key", File: snapshot.ManifestName, Size: 1},
		"an unknown snapshot": {Kind: snapshotKind, Name: "snptwo", File: "x", Size: 1},
	} {
		if b, err := h.one.readPiece(t.Context(), p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", what, b, err)
		}
	}
	if _, err := h.one.readPiece(t.Context(), cluster.Piece{Kind: store.TreeTemplates, Name: h.trees[store.TreeTemplates], File: imageFile, Size: 1 << 30}); err == nil {
		t.Error("a piece that is too large is served")
	}
}

// The object storage is verified once a day while this host is on duty, and soon after a failure.
func TestScrubEveryDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var at []time.Duration
		var failures int
		var fail error
		duty := true
		begun := time.Now()
		asked := make(chan struct{}, 1)
		var mu sync.Mutex
		go scrubber{
			every:  24 * time.Hour,
			onDuty: func() bool { mu.Lock(); defer mu.Unlock(); return duty },
			asked:  asked,
			scrub: func(context.Context, func() bool) error {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(begun))
				return fail
			},
			failed: func(error) { failures++ },
		}.run(ctx)
		runs := func(after time.Duration) (all []time.Duration) {
			time.Sleep(after)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			all, at, begun = at, nil, time.Now()
			return all
		}
		if got := runs(50 * time.Minute); len(got) != 0 {
			t.Errorf("soon after the start: %v", got)
		}
		if got := runs(20 * time.Minute); len(got) != 1 {
			t.Errorf("after an hour: %v", got)
		}
		got := runs(10 * 24 * time.Hour)
		if len(got) < 9 || len(got) > 11 {
			t.Errorf("in ten days: %v", got)
		}
		for i := 1; i < len(got); i++ {
			if d := got[i] - got[i-1]; d < 21*time.Hour || d > 27*time.Hour || d == 24*time.Hour {
				t.Errorf("between two runs: %v", d)
			}
		}
		mu.Lock()
		duty = false
		mu.Unlock()
		if got := runs(3 * 24 * time.Hour); len(got) != 0 {
			t.Errorf("off duty: %v", got)
		}
		asked <- struct{}{}
		if got := runs(3 * 24 * time.Hour); len(got) != 1 || got[0] != 0 {
			t.Errorf("off duty, when asked: %v", got)
		}
		mu.Lock()
		duty, fail = true, errors.New("unavailable")
		mu.Unlock()
		if got := runs(6 * time.Hour); len(got) < 5 || failures != len(got) {
			t.Errorf("while it fails: %v, %d failures", got, failures)
		}
		stop()
		synctest.Wait()
	})
}

// A host for which no regular verification is set verifies when it is asked to, on duty or not, and
// once more if it is asked meanwhile.
func TestScrubWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &Server{bucket: &s3.Bucket{}, verify: make(chan struct{}, 1)}
		var passes int
		go scrubber{
			onDuty: func() bool { return false },
			asked:  s.verify,
			scrub: func(_ context.Context, mayGoOn func() bool) error {
				passes++
				time.Sleep(time.Minute)
				if !mayGoOn() {
					t.Error("it may not go on")
				}
				return nil
			},
		}.run(ctx)
		time.Sleep(30 * 24 * time.Hour)
		if passes != 0 {
			t.Errorf("it verified %d times without being asked", passes)
		}
		s.VerifyObjects()
		synctest.Wait()
		for range 3 {
			s.VerifyObjects()
		}
		time.Sleep(30 * 24 * time.Hour)
		if passes != 2 {
			t.Errorf("it verified %d times, want 2", passes)
		}
		stop()
		synctest.Wait()
	})
}

// It reads no faster than its rate.
func TestScrubPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		for range 8 {
			if err := scrubPace(t.Context(), 8<<20); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 64<<20/scrubRate*time.Second {
			t.Errorf("64 MB took %s", took)
		}
	})
}

// It ends when another host is on duty.
func TestScrubEndsOffDuty(t *testing.T) {
	h := newStoringHosts(t)
	h.fill()
	h.upload()
	left := 3
	must(t, h.two.scrub(t.Context(), func() bool { left--; return left >= 0 }))
	var checked int64
	for _, kind := range h.two.storedKinds() {
		checked += h.two.bucket.Counts(kind).Checked
	}
	if checked != 3 {
		t.Errorf("it read %d pieces, want 3", checked)
	}
	if strings.Contains(h.log.String(), "verified") {
		t.Errorf("it says that it has verified everything:\n%s", h.log.String())
	}
}

func always() bool { return true }
