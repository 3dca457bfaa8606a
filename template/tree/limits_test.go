package tree

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
)

// exceeds checks that err is about a limit, with these words.
func exceeds(t *testing.T, err error, words string) {
	t.Helper()
	var e *bounded.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, and not %q", err, words)
	}
}

func TestWhereTreesAreMadePathsAreLimited(t *testing.T) {
	deep, long := strings.Repeat("d/", 255), strings.Repeat("n", 255)
	fine := of(t, OCI, layer(t, file(deep+"f", "1"), file(long, "2"), dir("a/"+long)))
	image := filepath.Join(t.TempDir(), "image")
	if err := fine.Write(image, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	back, err := Read(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := list(t, fine), list(t, back); !slices.Equal(a, b) {
		t.Error("it was not read as it was written")
	}
	for words, h := range map[string]tar.Header{
		"more than 255 bytes in a name":                file("a/"+long+"n", ""),
		"more than 4095 bytes in a path":               file(strings.Repeat("n/", 2048)+"n", ""),
		"more than 256 levels of folders":              dir(deep + "d/d"),
		"more than 4095 bytes in the target of a link": symlink("l", "/"+strings.Repeat("x/", 2048)),
	} {
		for _, d := range []Dialect{OCI, Overlay, Plain} {
			exceeds(t, New(day).Apply(t.Context(), layer(t, h), d, NewBudget()), words)
		}
	}
	// A link leads to where the path is too deep.
	twice := []tar.Header{dir(deep), symlink("l", deep), file("l/d/d/f", "")}
	exceeds(t, New(day).Apply(t.Context(), layer(t, twice...), Plain, NewBudget()), "more than 256 levels of folders")
	for _, name := range []string{long + "n", deep + "d/d"} {
		if _, err := New(day).Mkdir(name, day); err == nil {
			t.Errorf("Mkdir made %s", bounded.Short(name))
		}
		if err := New(day).Put(name, &Node{Mode: unix.S_IFREG}); err == nil {
			t.Errorf("Put made %s", bounded.Short(name))
		}
	}
}

// A name for which no block has room ended in a loop that took all memory.
func TestNoNameIsWrittenForever(t *testing.T) {
	for _, size := range []int{256, 4084, 4085, 10_000} {
		tr := New(day)
		tr.root.children[strings.Repeat("n", size)] = &Node{Mode: unix.S_IFREG}
		exceeds(t, tr.Write(filepath.Join(t.TempDir(), "image"), WriteOptions{}), "more than 255 bytes in a name")
	}
}

func TestTreesHaveNotTooManyFiles(t *testing.T) {
	tr := of(t, OCI, layer(t, dir("d"), file("d/a", ""), file("d/b", ""), file("c", ""), link("h", "c")))
	if want := tr.root.below(); tr.size != want || want.files != 5 {
		t.Errorf("its size is %v, and not %v", tr.size, want)
	}
	c := tr.Clone()
	for _, l := range []string{
		layer(t, file("d", "a file now"), file("c", "again")), layer(t, dir("d"), file("d/x/y", ""), file(".wh.c", "")), layer(t, dir("d"), file("d/.wh..wh..opq", ""), file("d/z", "")),
	} {
		if err := c.Apply(t.Context(), l, OCI, NewBudget()); err != nil {
			t.Fatal(err)
		}
		if want := c.root.below(); c.size != want {
			t.Errorf("its size is %v, and not %v", c.size, want)
		}
	}
	if s := Sub(tr.Root().Child("d")); s.size.files != 2 {
		t.Errorf("a part has the size %v", s.size)
	}
	c.size.files = MaxFiles - 1
	if err := c.Put("new", &Node{Mode: unix.S_IFREG}); err != nil {
		t.Error(err)
	}
	exceeds(t, c.Put("newer", &Node{Mode: unix.S_IFREG}), "more than 1000000 files")
	_, err := c.Mkdir("folder", day)
	exceeds(t, err, "more than 1000000 files")
	if err := c.Remove("new"); err != nil {
		t.Error(err)
	}
	c.size = size{}
	big := strings.Repeat("x", 64<<20)
	for i := range 4 {
		err = c.Put(fmt.Sprint(i), &Node{Mode: unix.S_IFREG, Data: Text(big)})
	}
	exceeds(t, err, "more than 256 MB of names, links and attributes")
}

// Folders that no entry names count as well: a path of 2 KB makes 256.
func TestImpliedFoldersCount(t *testing.T) {
	var entries []tar.Header
	for i := range 40 {
		entries = append(entries, file(fmt.Sprintf("%d/%sf", i, strings.Repeat("d/", 250)), ""))
	}
	tr := New(day)
	tr.size.files = MaxFiles - 10_000
	exceeds(t, tr.Apply(t.Context(), layer(t, entries...), Plain, NewBudget()), "more than 1000000 files")
}

// Paths with many names took time in the square of their number, and of the links on their way.
func TestPathsEnd(t *testing.T) {
	around := strings.TrimSuffix(strings.Repeat("x/../", 800), "/")
	links := []tar.Header{dir("x"), symlink("l0", around)}
	for i := 1; i < 40; i++ {
		links = append(links, symlink(fmt.Sprintf("l%d", i), fmt.Sprintf("%s/l%d", around, i-1)))
	}
	tr := of(t, Plain, layer(t, links...))
	_, err := tr.Resolve("l39/f", true)
	exceeds(t, err, "more than 1024 names in a path and its links")
	_, err = tr.Get(strings.Repeat("x/", 1<<20))
	exceeds(t, err, "more than 4095 bytes in a path")
	for name, want := range map[string]string{"x/../x/./y": "x/y", "missing/../x": "x", "../../a/b/../c": "a/c", "/": "", "x//y/": "x/y"} {
		if got, err := tr.Resolve(name, true); got != want || err != nil {
			t.Errorf("%s leads to %q, %v", name, got, err)
		}
	}
}

// A change of all files searches each folder once, however many files there are.
func TestChangesOfAllFilesAreLinear(t *testing.T) {
	searched := func(files int) (n int) {
		entries := []tar.Header{dir("home"), dir("other"), dir("other/deep")}
		for i := range files {
			entries = append(entries, file(fmt.Sprintf("home/%d", i), ""))
		}
		tr := of(t, OCI, layer(t, append(entries, link("other/deep/0", "home/0"))...))
		onReplace = func() { n++ }
		defer func() { onReplace = nil }()
		if err := tr.ChangeAll("home", func(n *Node) { n.UID++ }); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"home", "home/0", fmt.Sprint("home/", files-1), "other/deep/0"} {
			if f, err := tr.Get(name); err != nil || f.UID != 1 {
				t.Errorf("%s was changed %d times, %v", name, f.UID, err)
			}
		}
		if f, _ := tr.Get("other"); f.UID != 0 {
			t.Error("another folder was changed")
		}
		return n
	}
	if few, many := searched(10), searched(8000); few != 4 || many != few {
		t.Errorf("10 files take %d searches of folders, and 8000 take %d", few, many)
	}
}

// cancelled is a context that ends when it has been asked some times.
type cancelled struct {
	context.Context
	left atomic.Int64
}

func (c *cancelled) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

func endsAfter(t *testing.T, n int64) *cancelled {
	c := &cancelled{Context: t.Context()}
	c.left.Store(n)
	return c
}

func TestWorkEndsWithItsContext(t *testing.T) {
	var entries []tar.Header
	for i := range 100 {
		entries = append(entries, dir(fmt.Sprintf("d%d", i)))
	}
	l := layer(t, entries...)
	tr := New(day)
	if err := tr.Apply(endsAfter(t, 50), l, Plain, NewBudget()); !errors.Is(err, context.Canceled) || tr.size.files > 50 {
		t.Errorf("%d entries were made, %v", tr.size.files, err)
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := of(t, OCI, l).Write(image, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(endsAfter(t, 50), image); !errors.Is(err, context.Canceled) {
		t.Errorf("an image is read: %v", err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	now, old := New(day), New(day)
	for i, tr := range []*Tree{now, old} {
		if err := tr.Put("f", &Node{Mode: unix.S_IFREG, Data: Data{Path: large, Offset: int64(i), Size: 1 << 19}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := now.Compare(endsAfter(t, 3), old, func(Change) bool { return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("files are compared: %v", err)
	}
	// A tar of nothing but extended headers has no entries to stop at.
	var b bytes.Buffer
	for range 100 {
		b.Write(extended("comment", "x"))
	}
	path := filepath.Join(t.TempDir(), "tar")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := New(day).Apply(endsAfter(t, 50), path, Plain, NewBudget()); !errors.Is(err, context.Canceled) {
		t.Errorf("extended headers are read: %v", err)
	}
}

// extended is a header in a tar that describes the next one.
func extended(key, value string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: "f", Format: tar.FormatPAX, PAXRecords: map[string]string{"X." + key: value}})
	return b.Bytes()[:1024]
}

// pool is an account that grants up to most bytes.
type pool struct {
	most, held atomic.Int64
	given      chan struct{}
}

func newPool(most int64) *pool {
	p := &pool{given: make(chan struct{}, 1)}
	p.most.Store(most)
	return p
}

func (p *pool) Hold(_ context.Context, n int64) error {
	if p.held.Add(n) > p.most.Load() {
		p.held.Add(-n)
		return bothy.Errorf(bothy.CodeRateLimited, "full")
	}
	return nil
}

func (p *pool) Give(n int64) {
	p.held.Add(-n)
	select {
	case p.given <- struct{}{}:
	default:
	}
}

func TestTreesTakeMemory(t *testing.T) {
	var entries []tar.Header
	for i := range 5000 {
		entries = append(entries, file(fmt.Sprint(i), ""))
	}
	l := layer(t, entries...)
	p := newPool(1 << 40)
	ctx := bothy.WithMemoryAccount(t.Context(), p)
	tr := New(day)
	if err := tr.Apply(ctx, l, Plain, NewBudget()); err != nil {
		t.Fatal(err)
	}
	one := p.held.Load()
	if one < 5000*nodeBytes || one > 5000*(nodeBytes+100) {
		t.Errorf("5000 files hold %d bytes", one)
	}
	c := tr.Clone()
	if err := c.Apply(ctx, layer(t, file("one", "")), Plain, NewBudget()); err != nil {
		t.Fatal(err)
	}
	if more := p.held.Load() - one; more < 5000*cloneBytes || more > 5000*cloneBytes+2000 {
		t.Errorf("its clone holds %d more", more)
	}
	// The clone still has the files of the first.
	tr = nil
	runtime.GC()
	if p.held.Load() < one {
		t.Errorf("with the clone in use, %d of %d bytes are held", p.held.Load(), one)
	}
	runtime.KeepAlive(c)
	c = nil
	for p.held.Load() > 0 {
		runtime.GC()
		<-p.given
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := of(t, Plain, l).Write(image, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	read, err := Read(ctx, image)
	if err != nil || p.held.Load() < 5000*nodeBytes {
		t.Errorf("an image that is read holds %d bytes, %v", p.held.Load(), err)
	}
	runtime.KeepAlive(read)
	p.most.Store(0)
	if err := New(day).Apply(ctx, l, Plain, NewBudget()); bothy.ErrorCode(err) != bothy.CodeRateLimited {
		t.Errorf("without memory: %v", err)
	}
	if _, err := Read(ctx, image); bothy.ErrorCode(err) != bothy.CodeRateLimited {
		t.Errorf("without memory: %v", err)
	}
}

// What nodes are counted as is about what they take.
func TestNodesTakeWhatTheyAreCountedAs(t *testing.T) {
	var entries []tar.Header
	for i := range 50_000 {
		if i%10 == 0 {
			entries = append(entries, dir(fmt.Sprintf("folder-%d", i)))
		}
		entries = append(entries, file(fmt.Sprintf("folder-%d/some-name-%d", i/10*10, i), ""))
	}
	l := layer(t, entries...)
	entries = nil
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	tr := of(t, Plain, l)
	each := (heap() - before) / tr.size.files
	clone := tr.Clone()
	place := (heap()-before)/tr.size.files - each
	t.Logf("a node takes %d bytes, and its place in a clone %d", each, place)
	if each > nodeBytes*3/4 || place > cloneBytes*2 {
		t.Errorf("a node takes %d bytes, and its place in a clone %d", each, place)
	}
	runtime.KeepAlive(clone)
}

// allocates fails if f allocates more than a small input may.
func allocates(t *testing.T, f func()) {
	t.Helper()
	const most = 512 << 20 // the text of a tree, and as much again
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > most {
		t.Errorf("it took %d MB", n>>20)
	}
}

// FuzzApply looks for layers that take long or much memory, or make a tree that cannot be
// written and read again.
func FuzzApply(f *testing.F) {
	seed := func(entries ...tar.Header) {
		text, err := os.ReadFile(layer(f, entries...))
		if err != nil {
			f.Fatal(err)
		}
		for d := range 3 {
			f.Add(text, byte(d))
		}
	}
	seed(dir("d"), file("d/f", "f"), link("h", "d/f"), symlink("l", "d"), gone("d/f"), file("d/.wh..wh..opq", ""), file(".wh.d", ""))
	seed(file(strings.Repeat("n", 4085), ""))
	seed(file(strings.Repeat("d/", 300)+"f", ""))
	seed(symlink("a", "b/../a"), symlink("b", "a"), file("a/b/c", ""))
	f.Add(bytes.Repeat(extended("a", "b"), 10), byte(0))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, dialect byte) {
		path := filepath.Join(dir, "layer")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		p := newPool(64 << 20)
		tr := New(day)
		var err error
		allocates(t, func() {
			err = tr.Apply(bothy.WithMemoryAccount(t.Context(), p), path, Dialect(dialect%3), BudgetOf(1<<20, 1000))
		})
		if err != nil {
			return
		}
		if want := tr.root.below(); tr.size != want {
			t.Errorf("its size is %v, and not %v", tr.size, want)
		}
		image := filepath.Join(dir, "image")
		if tr.Write(image, WriteOptions{Xattrs: true}) != nil {
			return
		}
		if _, err := Read(t.Context(), image); err != nil {
			t.Errorf("what was written cannot be read: %v", err)
		}
	})
}

// FuzzReadEntries looks for lists of entries that take much memory, or are not what they say. They come
// from a process that a hostile tar may have taken over.
func FuzzReadEntries(f *testing.F) {
	path := layer(f, dir("d"), file("d/f", "f"), link("h", "d/f"), symlink("l", "d"))
	in, err := os.Open(path)
	if err != nil {
		f.Fatal(err)
	}
	defer in.Close()
	var good bytes.Buffer
	if err := WriteEntries(f.Context(), in, 100, &good); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add([]byte{tar.TypeReg, 2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 'a', 0, lastEntry})
	f.Add([]byte{tar.TypeReg, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		const size, most = 1000, 5
		count := 0
		allocates(t, func() {
			_ = ReadEntries(t.Context(), bytes.NewReader(data), size, most, func(h *tar.Header, offset int64) error {
				if count++; count > most || h.Size < 0 || offset < 0 || h.Typeflag == tar.TypeReg && h.Size+offset > size || bounded.CheckHeader(h) != nil {
					t.Errorf("entry %d: %+v at %d", count, h, offset)
				}
				return nil
			})
		})
	})
}

// FuzzRead looks for images that take long or much memory.
func FuzzRead(f *testing.F) {
	image := filepath.Join(f.TempDir(), "image")
	tr := New(day)
	if err := tr.Apply(f.Context(), layer(f, dir("a"), file("a/f", "f"), symlink("s", "a")), OCI, NewBudget()); err != nil {
		f.Fatal(err)
	}
	if err := tr.Write(image, WriteOptions{}); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(image)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[superOffset:])
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(image, append(make([]byte, superOffset), data...), 0o600); err != nil {
			t.Fatal(err)
		}
		allocates(t, func() {
			tr, err := Read(bothy.WithMemoryAccount(t.Context(), newPool(64<<20)), image)
			if err == nil && tr.size != tr.root.below() {
				t.Errorf("its size is %v, and not %v", tr.size, tr.root.below())
			}
		})
	})
}
