package tree

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var day = time.Unix(1_700_000_000, 0)

// layer writes a tar of entries to a file.
func layer(t testing.TB, list ...tar.Header) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range list {
		content := h.Linkname
		if h.Typeflag == tar.TypeReg {
			h.Linkname, h.Size = "", int64(len(content))
		} else {
			content = ""
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.ModTime.IsZero() {
			h.ModTime = day
		}
		h.Format = tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "layer.tar")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
func file(name, text string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: text}
}
func link(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
}
func symlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
}
func gone(name string) tar.Header { return tar.Header{Typeflag: tar.TypeChar, Name: name} }

func of(t *testing.T, d Dialect, layers ...string) *Tree {
	t.Helper()
	tr := New(day)
	for _, l := range layers {
		if err := tr.Apply(t.Context(), l, d, NewBudget()); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// list describes a tree, a line for each file; files with several names have the first
// of them behind each.
func list(t *testing.T, tr *Tree) []string {
	t.Helper()
	var out []string
	first := map[*Node]string{}
	err := Walk(tr.Root(), func(name string, n *Node) error {
		line := fmt.Sprintf("/%s %o %d:%d %d", name, n.Mode, n.UID, n.GID, n.Time.Unix())
		for _, k := range slices.Sorted(maps.Keys(n.Xattrs)) {
			line += fmt.Sprintf(" %s=%q", k, n.Xattrs[k])
		}
		switch {
		case n.IsFile():
			b, err := n.Data.Read(1 << 20)
			if err != nil {
				return err
			}
			line += " " + string(b)
		case n.IsLink():
			line += " -> " + n.Target
		case !n.IsDir():
			line += fmt.Sprintf(" %d,%d", n.Major, n.Minor)
		}
		if f, ok := first[n]; ok {
			line += " is " + f
		} else if !n.IsDir() {
			first[n] = "/" + name
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rich is a tree with all that there can be.
func rich(t *testing.T) *Tree {
	many := []tar.Header{dir("etc"), file("etc/passwd", "root:x:0:0"), file("big", strings.Repeat("0123456789abcdef", 40_000)),
		file("empty", ""), symlink("bin", "usr/bin"), symlink("long", "/"+strings.Repeat("x/", 1500)), link("etc/other", "etc/passwd"),
		{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o600}, {Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3},
		{Typeflag: tar.TypeReg, Name: "su", Linkname: "x", Mode: 0o4755, Uid: 70_000, Gid: 80_000, ModTime: time.Unix(5_000_000_000, 0),
			PAXRecords: map[string]string{"SCHILY.xattr.user.colour": "blue\x00\xff", "SCHILY.xattr.security.capability": "\x01\x00\x00\x02"}},
		dir("many")}
	for i := range 2000 {
		many = append(many, file(fmt.Sprintf("many/a-name-of-some-length-%04d", i), fmt.Sprint(i)))
	}
	return of(t, OCI, layer(t, many...))
}

func TestImageHoldsTheTree(t *testing.T) {
	tr := rich(t)
	image := filepath.Join(t.TempDir(), "image")
	if err := tr.Write(image, WriteOptions{Xattrs: true}); err != nil {
		t.Fatal(err)
	}
	back, err := Read(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list(t, tr), list(t, back)); diff != "" {
		t.Error(diff)
	}
	if out, err := exec.Command("fsck.erofs", image).CombinedOutput(); err != nil {
		t.Errorf("fsck.erofs: %v: %s", err, out)
	}
	again := filepath.Join(t.TempDir(), "again")
	if err := back.Write(again, WriteOptions{Xattrs: true}); err != nil {
		t.Fatal(err)
	}
	one, err1 := os.ReadFile(image)
	two, err2 := os.ReadFile(again)
	if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
		t.Errorf("the same tree makes another image (%v, %v)", err1, err2)
	}
}

// What mkfs.erofs makes is read, and what fsck.erofs takes out of ours is what was put in.
func TestOtherToolsAgree(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("owners need root")
	}
	tr := rich(t)
	image, out, made := filepath.Join(t.TempDir(), "i"), filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "m")
	if err := tr.Write(image, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"fsck.erofs", "--extract=" + out, image},
		{"mkfs.erofs", "--quiet", "-E", "noinline_data", "-x-1", made, out},
	} {
		if b, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, b)
		}
	}
	back, err := Read(t.Context(), made)
	if err != nil {
		t.Fatal(err)
	}
	// fsck.erofs keeps neither times, hard links, attributes nor set-user-id.
	plain := func(tr *Tree) (lines []string) {
		for _, l := range list(t, tr) {
			l, _, _ = strings.Cut(l, " is ")
			f := strings.Fields(l)
			f[3] = ""
			f[1] = strings.Replace(f[1], "104755", "100755", 1)
			var kept []string
			for _, s := range f {
				if !strings.Contains(s, "=") {
					kept = append(kept, s)
				}
			}
			lines = append(lines, strings.Join(kept, " "))
		}
		return lines
	}
	if diff := cmp.Diff(plain(tr), plain(back)); diff != "" {
		t.Error(diff)
	}
}

func TestLayersOfContainerImages(t *testing.T) {
	tr := of(t, OCI,
		layer(t, dir("a"), file("a/one", "1"), file("a/two", "2"), dir("b"), file("b/x", "x"), symlink("l", "b"), file("d", "d"), dir("c"), file("c/f", "f")),
		layer(t, file("a/.wh.one", ""), file("l/y", "y"), dir("d"), file("d/e", "e"), dir("c"), file("c/.wh..wh..opq", ""), file("c/g", "g"), file("../../out", "o")))
	var got []string
	for _, l := range list(t, tr) {
		name, _, _ := strings.Cut(l, " ")
		got = append(got, name)
	}
	want := []string{"/", "/a", "/a/two", "/b", "/b/x", "/b/y", "/c", "/c/g", "/d", "/d/e", "/l", "/out"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatHasChangedIsALayer(t *testing.T) {
	base := of(t, OCI, layer(t, dir("etc"), file("etc/a", "a"), file("etc/b", "b"), dir("gone"), file("gone/x", "x"), dir("was"), file("was/f", "f"),
		file("now", "file"), file("h1", "h"), link("h2", "h1"), dir("deep"), dir("deep/er"), file("deep/er/f", "f")))
	next := base.Clone()
	changes := layer(t, dir("./"), dir("./etc/"), file("./etc/a", "A"), gone("./gone"), link("./etc/b", "./gone"), gone("./was"), file("./was", "now a file"), dir("./now/"), file("./now/in", "in"),
		file("./h1", "h"), link("./h2", "./h1"), link("./h3", "./h1"), dir("./deep/"), dir("./deep/er/"), file("./deep/er/f", "f"),
		symlink("./etc/s", "../gone"), tar.Header{Typeflag: tar.TypeReg, Name: "./etc/x", Linkname: "x", PAXRecords: map[string]string{"SCHILY.xattr.user.a": "\xff\x00"}})
	if err := next.Apply(t.Context(), changes, Overlay, NewBudget()); err != nil {
		t.Fatal(err)
	}
	before := list(t, next)
	if err := next.Settle(base); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, list(t, next)); diff != "" {
		t.Errorf("settled, it is another tree: %s", diff)
	}
	path := filepath.Join(t.TempDir(), "diff.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.WriteLayer(base, f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	var names []string
	r, _ := os.Open(path)
	defer r.Close()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	want := []string{"./", "./gone", "./etc/", "./etc/b", "./etc/a", "./etc/s", "./etc/x", "./h1", "./h2", "./h3", "./now/", "./now/in", "./was"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("the layer holds: %s", diff)
	}
	copied := base.Clone()
	if err := copied.Apply(t.Context(), path, Overlay, NewBudget()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list(t, next), list(t, copied)); diff != "" {
		t.Errorf("applied, it makes another tree: %s", diff)
	}
}

func TestNothingLeadsOut(t *testing.T) {
	tr := of(t, OCI, layer(t, symlink("up", "../../.."), symlink("loop", "loop"), symlink("abs", "/etc"), dir("etc"), file("abs/f", "f"), file("up/g", "g")))
	for name, want := range map[string]string{"up/x": "x", "abs/f": "etc/f", "../../etc/f": "etc/f", "abs/../../..": ""} {
		if got, err := tr.Resolve(name, true); err != nil || got != want {
			t.Errorf("%s leads to %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := tr.Resolve("loop/x", true); err == nil {
		t.Error("a loop ends nowhere")
	}
	if n, err := tr.Get("/g"); err != nil || !n.IsFile() {
		t.Errorf("up/g: %v", err)
	}
}

func TestBudgets(t *testing.T) {
	l := layer(t, file("a", "12345"), file("b", "12345"))
	for want, b := range map[string]*Budget{"more than 0 GB": BudgetOf(9, 10), "more than 1 files": BudgetOf(100, 1)} {
		if err := New(day).Apply(t.Context(), l, OCI, b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %+v: %v", b, err)
		}
	}
}

func TestDamagedImagesAreErrors(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	if err := of(t, OCI, layer(t, dir("a"), file("a/f", "f"), symlink("s", "a"))).Write(image, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	for at := superOffset; at < blockSize+1024; at += 3 {
		b := bytes.Clone(good)
		b[at] ^= 0xff
		if err := os.WriteFile(bad, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = Read(t.Context(), bad) // does not panic, and ends
	}
	for _, n := range []int{0, 100, superOffset + 10, blockSize, len(good) - blockSize} {
		if err := os.WriteFile(bad, good[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(t.Context(), bad); err == nil {
			t.Errorf("%d bytes are an image", n)
		}
	}
}

func TestCloneIsItsOwn(t *testing.T) {
	a := of(t, OCI, layer(t, dir("d"), file("d/f", "f"), link("g", "d/f")))
	before := list(t, a)
	b := a.Clone()
	if err := b.Change("g", true, func(n *Node) { n.Mode = unix.S_IFREG | 0o600 }); err != nil {
		t.Fatal(err)
	}
	if n, _ := b.Get("d/f"); n.Mode != unix.S_IFREG|0o600 {
		t.Error("the other name has the old mode")
	}
	if err := b.Change("d", true, func(n *Node) { n.UID = 7 }); err != nil {
		t.Fatal(err)
	}
	if err := b.Remove("d/f"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, list(t, a)); diff != "" {
		t.Error(diff)
	}
}
