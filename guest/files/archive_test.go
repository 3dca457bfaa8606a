package files

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// names lists the entries of an archive, links with their targets.
func names(t *testing.T, r io.Reader) []string {
	t.Helper()
	var out []string
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			slices.Sort(out)
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeLink {
			h.Name += "=" + h.Linkname
		}
		out = append(out, h.Name)
	}
}

func TestArchiveExcludes(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	for _, d := range []string{"build", "src/build", "src/a/b/test", "src/test", "a/a"} {
		if err := os.MkdirAll(dir+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, dir+"/"+d+"/f.go", "x")
	}
	write(t, dir+"/test", "x")
	write(t, dir+"/x.log", "x")
	all := []string{"a/", "a/a/", "a/a/f.go", "build/", "build/f.go", "src/", "src/a/", "src/a/b/", "src/a/b/test/", "src/a/b/test/f.go",
		"src/build/", "src/build/f.go", "src/test/", "src/test/f.go", "test", "x.log"}
	for patterns, gone := range map[string][]string{
		"":                {},
		"*.log":           {"x.log"},
		"build":           {"build/", "build/f.go", "src/build/", "src/build/f.go"},
		"/build":          {"build/", "build/f.go"},
		"src/build x.log": {"src/build/", "src/build/f.go", "x.log"},
		"test/":           {"src/a/b/test/", "src/a/b/test/f.go", "src/test/", "src/test/f.go"},
		"src/**/test":     {"src/a/b/test/", "src/a/b/test/f.go", "src/test/", "src/test/f.go"},
		"build/**":        {"build/f.go"},
		"src/*/f.go":      {"src/build/f.go", "src/test/f.go"},
		"/a/a":            {"a/a/", "a/a/f.go"},
		"**/f.go":         {"a/a/f.go", "build/f.go", "src/a/b/test/f.go", "src/build/f.go", "src/test/f.go"},
		"[tx]*":           {"src/a/b/test/", "src/a/b/test/f.go", "src/test/", "src/test/f.go", "test", "x.log"},
		"missing":         {},
	} {
		var b bytes.Buffer
		if err := f.ReadArchive(nil, dir, &b, bothy.ArchiveOptions{Exclude: strings.Fields(patterns)}); err != nil {
			t.Fatal(err)
		}
		want := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(gone, s) })
		if got := names(t, &b); !slices.Equal(got, want) {
			t.Errorf("without %s:\n%v\nwant\n%v", patterns, got, want)
		}
	}
	for _, bad := range []string{"", "/", "[", "a//b", "../x", "."} {
		wantCode(t, f.ReadArchive(nil, dir, io.Discard, bothy.ArchiveOptions{Exclude: []string{bad}}), bothy.CodeInvalid)
	}
}

func TestArchiveKeepsHardLinks(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	src, dst := dir+"/src", dir+"/dst"
	if err := errors.Join(os.MkdirAll(src+"/d", 0o755), os.WriteFile(src+"/a", []byte("one"), 0o600),
		os.Link(src+"/a", src+"/d/b"), os.Link(src+"/a", dir+"/outside")); err != nil {
		t.Fatal(err)
	}
	var b, without bytes.Buffer
	for range 2 { // the second time over existing files
		b.Reset()
		if err := f.ReadArchive(nil, src, &b, bothy.ArchiveOptions{Gzip: true}); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteArchive(nil, dst, bytes.NewReader(b.Bytes())); err != nil {
			t.Fatal(err)
		}
	}
	zip, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, zip); !slices.Equal(got, []string{"a", "d/", "d/b=a"}) {
		t.Errorf("packed %v", got)
	}
	first, err1 := os.Stat(dst + "/a")
	second, err2 := os.Stat(dst + "/d/b")
	if err := errors.Join(err1, err2); err != nil || !os.SameFile(first, second) || content(t, dst+"/d/b") != "one" {
		t.Errorf("unpacked as two: %v", err)
	}
	// If the first name is excluded, the second has the content.
	if err := f.ReadArchive(nil, src, &without, bothy.ArchiveOptions{Exclude: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, &without); !slices.Equal(got, []string{"d/", "d/b"}) {
		t.Errorf("packed %v", got)
	}
}

func TestArchiveLinksToNothing(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	link := tar.Header{Name: "h", Linkname: "missing", Typeflag: tar.TypeLink}
	wantCode(t, f.WriteArchive(nil, dir, archive(t, link)), bothy.CodeInvalid)
	self := tar.Header{Name: "h", Linkname: "./h", Typeflag: tar.TypeLink}
	if err := f.WriteArchive(nil, dir, archive(t, tar.Header{Name: "h", Typeflag: tar.TypeReg}, self)); err != nil || content(t, dir+"/h") != "h" {
		t.Errorf("a link to itself: %v", err)
	}
}

func TestCompressedArchives(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	whole, _ := io.ReadAll(archive(t, tar.Header{Name: "f", Typeflag: tar.TypeReg}))
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	if _, err := zip.Write(whole); err != nil || zip.Close() != nil {
		t.Fatal(err)
	}
	good := b.Bytes()
	if err := f.WriteArchive(nil, dir, bytes.NewReader(good)); err != nil || content(t, dir+"/f") != "f" {
		t.Errorf("compressed: %v", err)
	}
	wantCode(t, f.WriteArchive(nil, dir, bytes.NewReader(good[:len(good)-3])), bothy.CodeInvalid)
	wrong := slices.Clone(good)
	wrong[len(wrong)-6] ^= 1 // of the checksum
	wantCode(t, f.WriteArchive(nil, dir, bytes.NewReader(wrong)), bothy.CodeInvalid)
	for _, magic := range []string{"\x28\xb5\x2f\xfd", "BZh9", "\xfd7zXZ\x00"} {
		wantCode(t, f.WriteArchive(nil, dir, strings.NewReader(magic+strings.Repeat("x", 600))), bothy.CodeUnsupported)
	}
}
