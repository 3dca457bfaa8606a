package build

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// counted is what the cache has, by its own account.
func (w *world) counted() (sum int64) {
	w.Helper()
	all, err := w.cache.list()
	if err != nil {
		w.Fatal(err)
	}
	for _, files := range all {
		for _, f := range files {
			sum += f.bytes
		}
	}
	return sum
}

// limit opens the builder with a cache of so many bytes.
func (w *world) limit(bytes int64) {
	w.Helper()
	w.Builder.Close()
	w.o.CacheBytes = bytes
	w.open()
}

// large uploads a context that takes three times what a file counts for at least.
func (w *world) large(project string, i int) string {
	w.Helper()
	return w.uploadAs(project, tarOf("f", fmt.Sprint(i)+strings.Repeat("x", 3*leastBytes)))
}

// age makes every file of the cache a day older.
func (w *world) age() {
	w.Helper()
	err := filepath.Walk(w.cache.dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			at := info.ModTime().Add(-24 * time.Hour)
			err = os.Chtimes(path, at, at)
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
}

// The cache is within its limit after each build, however new its files are.
func TestTheCacheStaysWithinItsLimit(t *testing.T) {
	w := newWorld(t)
	const most = 30 * leastBytes
	w.limit(most)
	for i := range 20 {
		r := w.build(bothy.BuildRequest{Dockerfile: fmt.Sprintf("FROM base\nCOPY f /f\nRUN write /a %d\nRUN write /b", i), ContextID: w.large(bothy.DefaultProject, i)})
		if r.State != bothy.BuildSucceeded {
			t.Fatal(r.Error)
		}
		if err := w.cache.prune(0); err != nil { // what follows the build's last event
			t.Fatal(err)
		}
		if n := w.counted(); n > most {
			t.Fatalf("after %d builds it has %d bytes, more than %d", i+1, n, most)
		}
	}
	if n := w.counted(); n < most/2 {
		t.Errorf("of %d bytes only %d are used", most, n)
	}
}

// A project that fills the cache evicts its own files first.
func TestTheLargestProjectIsPrunedFirst(t *testing.T) {
	w := newWorld(t)
	req := bothy.BuildRequest{Dockerfile: "FROM base\nRUN write /a 1"}
	w.buildAs(w.as("small"), req)
	w.age() // it is also the least recently used
	w.limit(30 * leastBytes)
	for i := range 20 {
		w.buildAs(w.as("greedy"), bothy.BuildRequest{Dockerfile: "FROM base\nCOPY f /f", ContextID: w.large("greedy", i)})
	}
	if err := w.cache.prune(0); err != nil {
		t.Fatal(err)
	}
	if r := w.buildAs(w.as("small"), req); r.Cached != 1 {
		t.Errorf("of the small project, %d steps were found", r.Cached)
	}
}

// What a build uses stays while it runs, even if that is more than the limit.
func TestWhatIsUsedIsNotPruned(t *testing.T) {
	w := newWorld(t)
	h := w.cache.hold("p")
	keep := func(key string) string {
		t.Helper()
		path := w.cache.path(layersDir, "p", key)
		f, err := w.cache.create(path)
		if err == nil {
			_, err = f.Write(make([]byte, leastBytes))
		}
		if err = errors.Join(err, f.Close()); err == nil {
			err = h.keep(f.Name(), path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := keep("a")
	other := w.cache.hold("p")
	if !other.has(path) {
		t.Fatal("it is not there")
	}
	there := func() bool { _, err := os.Stat(path); return err == nil }
	w.cache.max = 1
	h.end()
	if err := w.cache.prune(0); err != nil || !there() {
		t.Errorf("what another build uses is gone: %v", err)
	}
	other.end()
	if err := w.cache.prune(0); err != nil || there() {
		t.Errorf("what no build uses is there: %v", err)
	}
	// A project's builds cannot use more than all of the cache.
	w.cache.max = 2 * leastBytes
	keep("b")
	if h.left() != leastBytes || w.cache.hold("q").left() != 2*leastBytes {
		t.Errorf("there are %d bytes left", h.left())
	}
}

func TestAProjectsShareOfTheCache(t *testing.T) {
	w := newWorld(t)
	w.limit(10 << 20)
	id := w.upload("f", strings.Repeat("x", 11<<20))
	for what, file := range map[string]string{
		"a copy":  "FROM base\nCOPY f /f",
		"a mount": "FROM base\nRUN --mount=type=bind,source=f,target=/f --mount=type=cache,target=/c write /c/f " + strings.Repeat("x", 50_000),
	} {
		if what == "a mount" {
			w.limit(40_000)
		}
		r := w.build(bothy.BuildRequest{Dockerfile: file, ContextID: id})
		if r.Code != bothy.CodeQuota || r.Hint == "" || r.Done != 0 {
			t.Errorf("%s: %s %s", what, r.Code, r.Error)
		}
		if n := written(t, w.cache.dir); n > w.cache.max {
			t.Errorf("%s has left %d bytes", what, n)
		}
	}
}

// The image of a template is the same file as in the cache: it counts as the template's, and goes
// with it.
func TestImagesOfDeletedTemplatesAreNotKept(t *testing.T) {
	w := newWorld(t)
	w.build(bothy.BuildRequest{Name: "stays", Dockerfile: "FROM base\nRUN write /a 1"})
	w.build(bothy.BuildRequest{Name: "goes", Dockerfile: "FROM base\nRUN write /a 2"})
	imagesNow := func() int {
		list, err := filepath.Glob(filepath.Join(w.cache.dir, imagesDir, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	w.age()
	before := w.counted()
	if err := w.cache.prune(0); err != nil || imagesNow() != 2 {
		t.Fatalf("there are %d images: %v", imagesNow(), err)
	}
	if err := w.library.RemoveTemplate(w.me(), "goes"); err != nil {
		t.Fatal(err)
	}
	if err := w.cache.prune(0); err != nil || imagesNow() != 1 {
		t.Errorf("then there are %d images: %v", imagesNow(), err)
	}
	if n := w.counted(); n != before {
		t.Errorf("images were counted: %d bytes, then %d", before, n)
	}
}

// Every file that a build writes leaves the disk its reserve, and the cache makes room.
func TestBuildsLeaveTheDiskItsReserve(t *testing.T) {
	const reserve = 1 << 30
	w := newWorld(t)
	w.Builder.o.MinFreeDisk = reserve
	low := "" // the folder where there is too little
	w.Builder.free = func(dir string) (int64, error) {
		if low != "" && strings.HasPrefix(dir, low) {
			return reserve - 1, nil
		}
		return reserve, nil
	}
	id := w.upload("f", "x")
	for what, c := range map[string]struct{ low, file string }{
		"a layer":           {w.cache.dir, "FROM base\nCOPY f /f"},
		"a cache mount":     {w.cache.dir, "FROM base\nRUN --mount=type=cache,target=/c write /c/f x"},
		"a command's files": {w.work, "FROM base\nRUN write /f x"},
	} {
		low = ""
		if r := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN write /old 1"}); r.State != bothy.BuildSucceeded {
			t.Fatal(r.Error)
		}
		low = c.low
		if r := w.build(bothy.BuildRequest{Dockerfile: c.file, ContextID: id}); r.Code != bothy.CodeDiskFull || r.Done != 0 {
			t.Errorf("%s: %s %s after %d steps", what, r.Code, r.Error, r.Done)
		}
		left, err := filepath.Glob(filepath.Join(w.cache.dir, layersDir, "*", "*"))
		if err != nil || len(left) != 0 {
			t.Errorf("%s: the cache has kept %q: %v", what, left, err)
		}
	}
	low = w.records()
	if r := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN print much"}); r.State != bothy.BuildSucceeded || r.log != "done|\n" {
		t.Errorf("without room for its log: %s, %q", r.Error, r.log)
	}
	low = w.o.Dir
	if _, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base"}); bothy.ErrorCode(err) != bothy.CodeDiskFull {
		t.Errorf("a build for whose record there is no room: %v", err)
	}
}

// A project's contexts together may be as large as one, or a thousand; the oldest go first, but for
// those of builds.
func TestContextsOfAProjectAreLimited(t *testing.T) {
	w := newWorld(t)
	used := w.upload("f", "used")
	if _, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN wait", ContextID: used}); err != nil {
		t.Fatal(err)
	}
	<-w.entered
	old, foreign := w.upload("f", "old"), w.uploadAs("another", tarOf("f", "old"))
	grow := func(id string, bytes int64) string {
		t.Helper()
		path := w.contextPath(bothy.DefaultProject, id)
		err := os.Truncate(path, bytes)
		if err == nil {
			at := time.Now().Add(-time.Hour)
			err = os.Chtimes(path, at, at)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	grow(used, maxContextBytes/2)
	gone := grow(old, maxContextBytes/2)
	w.upload("f", "new")
	if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the oldest is there: %v", err)
	}
	for project, id := range map[string]string{bothy.DefaultProject: used, "another": foreign} {
		if _, err := os.Stat(w.contextPath(project, id)); err != nil {
			t.Error(err)
		}
	}
	grow(used, maxContextBytes)
	if _, err := w.UploadContext(w.me(), bytes.NewReader(tarOf("f", "another"))); bothy.ErrorCode(err) != bothy.CodeQuota || bothy.AsError(err).Hint == "" {
		t.Errorf("beside what builds use: %v", err)
	}
	share := &uploadShare{b: w.Builder, project: "p"}
	w.uploading.add("p", 2*maxContextBytes)
	if _, err := share.Write([]byte("x")); bothy.ErrorCode(err) != bothy.CodeQuota {
		t.Errorf("what is uploaded at once: %v", err)
	}
	share.end()
	if n := w.uploading.add("p", -2*maxContextBytes); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

func TestTheRestOfAnUploadIsDeleted(t *testing.T) {
	w := newWorld(t)
	rest := filepath.Join(w.contexts(), newPrefix+"1")
	if err := os.WriteFile(rest, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Builder.Close()
	w.open()
	if _, err := os.Stat(rest); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
