package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/blob/blobtest"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

// host is a server's store with a bucket, and the records that the store consults.
type host struct {
	*Store
	t      *testing.T
	server *s3test.Server
	url    string
	dir    string
	now    atomic.Int64

	mu      sync.Mutex
	records map[string]bool
	kept    []string
}

func newHost(t *testing.T, change func(*Options)) *host {
	server := s3test.Start(t)
	return hostAt(t, server, server.Bucket(t, "bothy"), t.TempDir(), change)
}

// hostAt is a host with a given folder and bucket, which may have been used before.
func hostAt(t *testing.T, server *s3test.Server, url, dir string, change func(*Options)) *host {
	h := &host{t: t, server: server, url: url, dir: dir, records: map[string]bool{}}
	h.now.Store(time.Now().UnixNano())
	h.open(change)
	return h
}

func (h *host) open(change func(*Options)) {
	h.t.Helper()
	b := openBucket(h.t, h.url)
	if err := b.Claim(h.t.Context(), claimOf(h.url, "owner")); err != nil {
		h.t.Fatal(err)
	}
	o := h.options()
	if change != nil {
		change(&o)
	}
	var err error
	if h.Store, err = Open(filepath.Join(h.dir, "trees"), b, o); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(h.Store.Close)
}

func (h *host) options() Options {
	return Options{
		Kind: "snapshots", State: filepath.Join(h.dir, "state"), Grace: time.Hour,
		Named: func(_ context.Context, name string) (bool, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.records[name], nil
		},
		OnKept: func(name string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.kept = append(h.kept, name)
		},
		now:     func() time.Time { return time.Unix(0, h.now.Load()) },
		backoff: func(int) time.Duration { return 10 * time.Millisecond },
	}
}

// database holds the records of places that servers share.
type database struct {
	mu  sync.Mutex
	all []Place
}

func (d *database) Places(context.Context) ([]Place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all), nil
}

func (d *database) AddPlace(_ context.Context, p Place) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.ContainsFunc(d.all, func(k Place) bool { return k.ID == p.ID }) {
		p.Used = false
		d.all = append(d.all, p)
	}
	return nil
}

func (d *database) UsePlace(_ context.Context, p Place) (Place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.all {
		if k.Used && k.ID != p.ID {
			return k, nil
		}
	}
	p.Used = true
	d.all = []Place{p}
	return p, nil
}

// databases maps the owners of buckets to their databases.
var databases sync.Map

// claimOf is the claim of a server with the database of this owner.
func claimOf(url, owner string) Claim {
	d, _ := databases.LoadOrStore(url+" "+owner, &database{})
	return Claim{Owner: owner, Places: d.(*database)}
}

func openBucket(t *testing.T, url string) *Bucket {
	t.Helper()
	l, err := ParseLocation(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := OpenBucket(l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// add creates a tree on this host and its record.
func (h *host) add(name string, files map[string][]byte) {
	h.t.Helper()
	d, err := h.Create(h.t.Context(), name)
	if err != nil {
		h.t.Fatal(err)
	}
	for path, data := range files {
		full := filepath.Join(d.Dir(), path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o711), os.WriteFile(full, data, 0o600)); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := d.Commit(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	h.records[name] = true
	h.mu.Unlock()
}

// keep uploads a tree to the bucket and waits for it.
func (h *host) keep(name string) {
	h.t.Helper()
	h.Keep(name)
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	if err := h.WaitKept(ctx, name); err != nil {
		h.t.Fatal(err)
	}
}

// forget evicts all trees that are in the bucket from this host.
func (h *host) forget() {
	h.evictUntil(func(left, _ int64) bool { return left <= 0 })
}

func (h *host) wantFiles(name string, want map[string][]byte) {
	h.t.Helper()
	dir, release, err := h.Open(h.t.Context(), name)
	if err != nil {
		h.t.Fatal(err)
	}
	defer release()
	got := map[string][]byte{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		got[rel], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		h.t.Fatalf("the tree has the files %q", slices.Sorted(maps.Keys(got)))
	}
	for path := range want {
		if !bytes.Equal(got[path], want[path]) {
			h.t.Errorf("%s has different content: %d bytes of %d", path, len(got[path]), len(want[path]))
		}
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// files has files of every kind: small and large, compressible and not, of one and several chunks.
func files() map[string][]byte {
	return map[string][]byte{
		"manifest.json":     []byte(`{"version":1}`),
		"files.tar":         bytes.Repeat([]byte("compressible "), 300_000),
		"memory/pages.img":  noise(2*chunkSize + 4321),
		"memory/empty":      {},
		"memory/state":      noise(inlineBytes),
		"memory/state.more": noise(inlineBytes + 1),
	}
}

func TestStoreIsABlobStore(t *testing.T) {
	server := s3test.Start(t)
	var n int
	open := func(t *testing.T, dir string) *Store {
		n++
		url := bucketFor(t, server, dir)
		b := openBucket(t, url)
		if err := b.Claim(t.Context(), claimOf(url, "owner")); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, b, Options{Kind: "snapshots", State: dir + "-state", Grace: time.Hour, Named: func(context.Context, string) (bool, error) { return true, nil }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	t.Run("on this host", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T, dir string) blob.Store { return open(t, dir) })
	})
	t.Run("only in the bucket", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T, dir string) blob.Store { return &bucketOnly{open(t, dir)} })
	})
}

// bucketFor returns the bucket that belongs to a folder.
func bucketFor(t *testing.T, server *s3test.Server, dir string) string {
	name := "b" + strings.ToLower(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, dir)) + "x"
	if there, err := server.Client.BucketExists(t.Context(), name); err != nil {
		t.Fatal(err)
	} else if there {
		return server.URL(name)
	}
	return server.Bucket(t, name)
}

// bucketOnly is a store whose trees leave the host as soon as they are committed.
type bucketOnly struct{ *Store }

func (s *bucketOnly) Create(ctx context.Context, name string) (blob.Draft, error) {
	d, err := s.Store.Create(ctx, name)
	return &evictedDraft{d, s.Store, name}, err
}

type evictedDraft struct {
	blob.Draft
	s    *Store
	name string
}

func (d *evictedDraft) Commit(ctx context.Context) error {
	if err := d.Draft.Commit(ctx); err != nil {
		return err
	}
	d.s.Keep(d.name)
	if err := d.s.WaitKept(ctx, d.name); err != nil {
		return err
	}
	if removed, err := d.s.local.RemoveClosed(d.name); err != nil || !removed {
		return fmt.Errorf("%s is still on this host: %v", d.name, err)
	}
	return nil
}

func TestEveryKindOfFileComesBack(t *testing.T) {
	h := newHost(t, nil)
	want := files()
	h.add("one", want)
	h.keep("one")
	h.forget()
	if h.Local("one") {
		t.Fatal("the tree is still on this host")
	}
	h.wantFiles("one", want)
	if !h.Local("one") {
		t.Error("a tree that was fetched is not on this host")
	}
	if got, err := h.ReadFile(t.Context(), "one", "manifest.json"); err != nil || !bytes.Equal(got, want["manifest.json"]) {
		t.Errorf("read %q, %v", got, err)
	}
	var packed int
	for _, key := range h.server.Objects(t, "bothy") {
		if strings.HasSuffix(key, ".zst") {
			packed++
		}
	}
	if packed != 1 {
		t.Errorf("%d chunks are compressed, where only one gains by it", packed)
	}
}

func TestAnotherHostFetchesIt(t *testing.T) {
	h := newHost(t, nil)
	want := files()
	h.add("one", want)
	h.keep("one")
	other := hostAt(t, h.server, h.url, t.TempDir(), nil)
	if got, err := other.ReadFile(t.Context(), "one", "manifest.json"); err != nil || !bytes.Equal(got, want["manifest.json"]) {
		t.Errorf("read %q, %v", got, err)
	}
	if other.Local("one") {
		t.Error("reading one file fetched the whole tree")
	}
	other.wantFiles("one", want)
	if _, _, err := other.Open(t.Context(), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a tree that does not exist: %v", err)
	}
}

func TestHolesStayHoles(t *testing.T) {
	h := newHost(t, nil)
	d, err := h.Create(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(d.Dir(), "ram"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{5 * chunkSize, 9*chunkSize + 100_000} {
		if _, err := f.WriteAt(noise(10_000), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Truncate(160<<20), f.Close(), d.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(h.root, "one", "ram"))
	if err != nil {
		t.Fatal(err)
	}
	h.keep("one")
	h.forget()
	dir, release, err := h.Open(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	after, err := os.ReadFile(filepath.Join(dir, "ram"))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the content differs: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, "ram"))
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 1<<20 {
		t.Errorf("the file takes %d bytes on disk", used)
	}
}

// An upload that is cut off by a crash is invisible to other hosts, and continues where it was when
// the server starts again.
func TestUploadContinuesAfterACrash(t *testing.T) {
	for _, at := range []string{"s3.chunk", "s3.commit", "s3.committed", "s3.uploaded"} {
		t.Run(at, func(t *testing.T) {
			h := newHost(t, nil)
			want := files()
			h.add("one", want)
			hit := make(chan struct{})
			var once sync.Once
			mend := failpoint.Set(at, func() error {
				once.Do(func() { close(hit) })
				h.Store.stop() // as if the server were killed
				return errors.New("killed")
			})
			h.Keep("one")
			<-hit
			h.Store.Close()
			mend()
			if h.Kept("one") {
				t.Fatal("a partial upload counts as stored")
			}
			other := hostAt(t, h.server, h.url, t.TempDir(), nil)
			_, _, err := other.Open(t.Context(), "one")
			if whole := at == "s3.committed" || at == "s3.uploaded"; whole != (err == nil) {
				t.Errorf("another host finds a partial upload: %v", err)
			}
			before := len(h.server.Asked("PUT /bothy/snapshots/one/"))
			h.open(nil)
			h.keep("one")
			if at != "s3.chunk" {
				if again := len(h.server.Asked("PUT /bothy/snapshots/one/")) - before; again > 1 {
					t.Errorf("%d objects were sent again", again)
				}
			}
			h.forget()
			h.wantFiles("one", want)
		})
	}
}

func TestStorageIsUnavailable(t *testing.T) {
	h := newHost(t, nil)
	want := files()
	h.add("one", want)
	h.keep("one")
	h.forget()
	mend := h.server.InjectFaults(s3test.Faults{Disconnect: func(*http.Request) bool { return true }})
	// A new tree is stored on this host and waits for its upload.
	h.add("two", want)
	h.Keep("two")
	h.wantFiles("two", want)
	_, _, err := h.Open(t.Context(), "one")
	var be *bothy.Error
	if !errors.As(err, &be) || be.Code != bothy.CodeStore || be.RetryAfter == 0 || be.Hint == "" {
		t.Errorf("fetching says %v", err)
	}
	if h.Local("one") {
		t.Error("a partial tree is on this host")
	}
	if h.Kept("two") || h.Pending() != 1 {
		t.Error("a pending upload is not reported")
	}
	h.forget()
	if !h.Local("two") {
		t.Fatal("a tree that exists only on this host was evicted")
	}
	mend()
	h.keep("two")
	h.wantFiles("one", want)
}

// A tree is in the bucket only once what it needs is there, however often that fails.
func TestWhatATreeNeedsIsUploadedFirst(t *testing.T) {
	want := files()
	asked, answers := make(chan string), make(chan error)
	h := newHost(t, func(o *Options) {
		o.Before = func(ctx context.Context, dir string) error {
			asked <- dir
			return <-answers
		}
	})
	h.add("one", want)
	h.Keep("one")
	for _, err := range []error{errors.New("no answer"), fs.ErrNotExist, ErrUnavailable, nil} {
		dir := <-asked
		for name := range want {
			if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
		if h.Kept("one") || h.Pending() != 1 {
			t.Error("it is said to be in the bucket before what it needs is")
		}
		answers <- err
	}
	h.keep("one")
	h.forget()
	h.wantFiles("one", want)
}

func TestStorageStopsInTheMiddle(t *testing.T) {
	h := newHost(t, nil)
	want := files()
	h.add("one", want)
	h.keep("one")
	h.forget()
	var cut atomic.Int64
	chunks := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/one/") && !strings.HasSuffix(r.URL.Path, indexName)
	}
	// A single failure is retried.
	h.server.InjectFaults(s3test.Faults{Cut: func(r *http.Request) int64 {
		if chunks(r) && cut.Add(1) == 1 {
			return 1000
		}
		return 0
	}})
	h.wantFiles("one", want)
	h.forget()
	mend := h.server.InjectFaults(s3test.Faults{Cut: func(r *http.Request) int64 {
		if chunks(r) {
			return 1000
		}
		return 0
	}})
	_, _, err := h.Open(t.Context(), "one")
	if bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("fetching says %v", err)
	}
	h.wantClean()
	mend()
	h.wantFiles("one", want)
}

// wantClean checks that a failure left nothing on this host.
func (h *host) wantClean() {
	h.t.Helper()
	entries, err := os.ReadDir(h.root)
	if err != nil || len(entries) > 0 {
		h.t.Errorf("left on this host: %v, %v", entries, err)
	}
}

func TestStorageReturnsOtherBytes(t *testing.T) {
	h := newHost(t, nil)
	want := files()
	h.add("one", want)
	h.keep("one")
	h.forget()
	for what, fault := range map[string]func(r *http.Request, b []byte) []byte{
		"a bit": func(r *http.Request, b []byte) []byte {
			if r.Method == http.MethodGet && !strings.HasSuffix(r.URL.Path, indexName) && len(b) > 10 {
				b[len(b)/2] ^= 1
			}
			return b
		},
		"another chunk": func(r *http.Request, b []byte) []byte {
			if r.Method == http.MethodGet && int64(len(b)) == chunkSize {
				return bytes.Repeat([]byte{7}, len(b))
			}
			return b
		},
	} {
		mend := h.server.InjectFaults(s3test.Faults{Answer: fault})
		_, _, err := h.Open(t.Context(), "one")
		if bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
			t.Errorf("%s: %v", what, err)
		}
		h.wantClean()
		mend()
	}
	h.wantFiles("one", want)
}

// An object that the storage acknowledged but lost is noticed while the host still has a copy.
func TestStorageLosesAnObject(t *testing.T) {
	h := newHost(t, nil)
	want := files()
	h.add("one", want)
	var lost atomic.Bool
	h.server.InjectFaults(s3test.Faults{Answer: func(r *http.Request, b []byte) []byte {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".zst") && lost.CompareAndSwap(false, true) {
			key := strings.TrimPrefix(r.URL.Path, "/bothy/")
			if err := h.server.Remove("bothy", key); err != nil {
				t.Error(err)
			}
		}
		return b
	}})
	h.keep("one")
	if !lost.Load() {
		t.Fatal("nothing was lost")
	}
	h.forget()
	h.wantFiles("one", want)
}

func TestConcurrentReadersFetchOnce(t *testing.T) {
	h := newHost(t, nil)
	want := files()
	h.add("one", want)
	h.keep("one")
	h.forget()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { h.wantFiles("one", want) })
	}
	all.Wait()
	seen := map[string]int{}
	for _, r := range h.server.Asked("GET /bothy/snapshots/one/") {
		seen[r]++
	}
	for r, n := range seen {
		if n > 1 {
			t.Errorf("%s: %d times", r, n)
		}
	}
}

func TestFetchEndsWhenNobodyWaits(t *testing.T) {
	h := newHost(t, nil)
	h.add("one", files())
	h.keep("one")
	h.forget()
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	mend := h.server.InjectFaults(s3test.Faults{Before: func(r *http.Request) { asked <- struct{}{}; <-answer }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { _, _, err := h.Open(ctx, "one"); ended <- err }()
	<-asked
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the open ended with %v", err)
	}
	close(answer)
	mend()
	h.wantFiles("one", files())
}

func TestCacheIsBounded(t *testing.T) {
	one := map[string][]byte{"f": noise(1 << 20)}
	h := newHost(t, func(o *Options) { o.CacheBytes = 5 << 19 }) // two and a half
	for n := range 4 {
		name := fmt.Sprint("t", n)
		h.add(name, one)
		h.now.Add(int64(time.Minute))
		h.keep(name)
	}
	h.add("own", one) // not in the bucket
	h.evict()
	var here []string
	for _, name := range []string{"t0", "t1", "t2", "t3", "own"} {
		if h.Local(name) {
			here = append(here, name)
		}
	}
	if fmt.Sprint(here) != "[t2 t3 own]" {
		t.Errorf("the trees on this host are %v", here)
	}
	// A tree that is open is not evicted.
	h.now.Add(int64(time.Minute))
	_, release, err := h.Open(t.Context(), "t0")
	if err != nil {
		t.Fatal(err)
	}
	h.forget()
	if !h.Local("t0") || h.Local("t3") {
		t.Error("an open tree was evicted, or a closed one was not")
	}
	release()
	if names, err := h.List(t.Context()); err != nil || fmt.Sprint(names) != "[own t0 t1 t2 t3]" {
		t.Errorf("listed: %v, %v", names, err)
	}
}

func TestFullDisk(t *testing.T) {
	h := newHost(t, nil)
	h.add("one", files())
	h.keep("one")
	h.forget()
	h.o.MinFree = 1 << 60
	_, _, err := h.Open(t.Context(), "one")
	if bothy.ErrorCode(err) != bothy.CodeDiskFull {
		t.Errorf("before the fetch: %v", err)
	}
	h.o.MinFree = 0
	defer failpoint.Set("s3.fetched", func() error { return &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC} })()
	_, _, err = h.Open(t.Context(), "one")
	if bothy.ErrorCode(err) != bothy.CodeDiskFull {
		t.Errorf("during the fetch: %v", err)
	}
	h.wantClean()
}

func TestRemovedAfterTheGraceTime(t *testing.T) {
	h := newHost(t, nil)
	for _, name := range []string{"one", "two"} {
		h.add(name, files())
		h.keep(name)
	}
	remove := func(name string) {
		t.Helper()
		if err := h.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	remove("one")
	h.mu.Lock()
	delete(h.records, "one")
	h.mu.Unlock()
	h.collect()
	if !h.inBucket("one") {
		t.Error("the tree was removed within the grace time")
	}
	if _, _, err := h.Open(t.Context(), "one"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed tree can be opened: %v", err)
	}
	h.now.Add(int64(2 * time.Hour))
	mend := h.server.InjectFaults(s3test.Faults{Disconnect: func(r *http.Request) bool { return r.Method == http.MethodDelete }})
	if err := h.Collect(t.Context()); err == nil {
		t.Error("a collection without storage returned no error")
	}
	mend()
	h.collect()
	if h.inBucket("one") || !h.inBucket("two") {
		t.Errorf("the bucket has %v", h.server.Objects(t, "bothy"))
	}
	// A tree that the records still name is not removed.
	remove("two")
	h.now.Add(int64(2 * time.Hour))
	h.collect()
	if !h.inBucket("two") {
		t.Fatal("a tree was removed that the records name")
	}
	h.wantFiles("two", files())
}

func (h *host) collect() {
	h.t.Helper()
	if err := h.Collect(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) inBucket(name string) bool {
	return slices.ContainsFunc(h.server.Objects(h.t, "bothy"), func(key string) bool { return strings.HasPrefix(key, "snapshots/"+name+"/") })
}

func TestSweepAsksTheRecords(t *testing.T) {
	h := newHost(t, nil)
	for _, name := range []string{"known", "orphan"} {
		h.add(name, files())
		h.keep(name)
	}
	other := hostAt(t, h.server, h.url, t.TempDir(), nil)
	other.records["known"] = true
	sweep := func() {
		t.Helper()
		if err := other.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		other.collect()
	}
	other.o.Doubtful = func() bool { return true }
	sweep()
	other.now.Add(int64(2 * time.Hour))
	other.o.Doubtful = nil
	sweep() // the grace time starts now
	if !h.inBucket("orphan") {
		t.Fatal("a tree was removed before the grace time had passed")
	}
	other.now.Add(int64(2 * time.Hour))
	sweep()
	if h.inBucket("orphan") || !h.inBucket("known") {
		t.Errorf("the bucket has %v", h.server.Objects(t, "bothy"))
	}
}

// A tree that another host deleted is removed from this host's disk too; one that is only here stays.
func TestDeletedByAnotherHost(t *testing.T) {
	h := newHost(t, nil)
	for _, name := range []string{"deleted", "new"} {
		h.add(name, files())
	}
	h.keep("deleted")
	h.mu.Lock()
	clear(h.records)
	h.mu.Unlock()
	sweep := func() {
		t.Helper()
		if err := h.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.collect()
	}
	sweep()
	if !h.Local("deleted") || !h.inBucket("deleted") {
		t.Error("the tree was removed before the grace time had passed")
	}
	h.now.Add(int64(2 * time.Hour))
	sweep()
	if h.Local("deleted") || h.inBucket("deleted") {
		t.Errorf("the tree was not removed: on this host %v, in the bucket %v", h.Local("deleted"), h.inBucket("deleted"))
	}
	if !h.Local("new") {
		t.Error("a tree that exists only on this host was removed")
	}
}

func TestNothingIsRemovedWithoutTheRecords(t *testing.T) {
	h := newHost(t, nil)
	h.add("one", files())
	h.keep("one")
	if err := h.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	h.now.Add(int64(2 * time.Hour))
	h.o.Named = func(context.Context, string) (bool, error) { return false, errors.New("the database is unavailable") }
	if err := h.Collect(t.Context()); err == nil {
		t.Error("the sweep returned no error")
	}
	if !h.inBucket("one") {
		t.Error("the tree was removed")
	}
}

func TestRemoveEndsAnUpload(t *testing.T) {
	h := newHost(t, nil)
	h.add("one", files())
	begun, on := make(chan struct{}, 100), make(chan struct{})
	mend := h.server.InjectFaults(s3test.Faults{Before: func(r *http.Request) {
		if r.Method == http.MethodPut {
			begun <- struct{}{}
			<-on
		}
	}})
	h.Keep("one")
	<-begun
	waited := make(chan error)
	go func() { waited <- h.WaitKept(t.Context(), "one") }()
	if err := h.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("waiting for the upload ended with %v", err)
	}
	close(on)
	mend()
	if h.Pending() != 0 || h.Local("one") {
		t.Error("the upload is still pending, or the tree is on this host")
	}
}

func TestNamesTakenInTheBucket(t *testing.T) {
	h := newHost(t, nil)
	h.add("one", files())
	h.keep("one")
	other := hostAt(t, h.server, h.url, t.TempDir(), nil)
	other.add("one", map[string][]byte{"f": []byte("something else")})
	failed := make(chan struct{})
	var once sync.Once
	other.o.backoff = func(int) time.Duration { once.Do(func() { close(failed) }); return time.Hour }
	other.Keep("one")
	<-failed
	if other.Kept("one") {
		t.Error("the tree counts as stored")
	}
	h.forget()
	h.wantFiles("one", files())
}
