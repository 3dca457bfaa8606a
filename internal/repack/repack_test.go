package repack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archiveOf is an archive with some content.
func archiveOf(t *testing.T, content []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "archive"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Size = int64(len(h.Uname)) // the content, for short
		content := h.Uname
		h.Uname = ""
		if h.Typeflag != tar.TypeReg {
			h.Size = 0
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, content := range files {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipOf(t *testing.T, content io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.Copy(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zeros are n bytes of zero.
func zeros(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// bomb is a small archive of a file of zeros with a size, and with content of another.
func bomb(t *testing.T, size, content int64) []byte {
	t.Helper()
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	if err := w.WriteHeader(&tar.Header{Name: "zeros", Typeflag: tar.TypeReg, Size: size}); err != nil {
		t.Fatal(err)
	}
	return gzipOf(t, io.MultiReader(&head, zeros(content)))
}

func TestRepack(t *testing.T) {
	file := func(name, content string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Uname: content}
	}
	many := make([]tar.Header, maxFiles+1)
	for i := range many {
		many[i] = file(fmt.Sprint(i), "")
	}
	entries := map[string]string{}
	for i := range 20_000 {
		entries[fmt.Sprintf("%0200d", i)] = ""
	}
	for name, c := range map[string]struct {
		content []byte
		want    string // the names, or ! and a part of the error
	}{
		"a tar":            {tarOf(t, file("pdf/SKILL.md", "one"), file("pdf/a/b.sh", "two")), "skills/ skills/x/ skills/x/SKILL.md skills/x/a/ skills/x/a/b.sh"},
		"a gzip":           {gzipOf(t, bytes.NewReader(tarOf(t, file("a", "one"), file("b/c", "two")))), "skills/ skills/x/ skills/x/a skills/x/b/ skills/x/b/c"},
		"a zip":            {zipOf(t, map[string]string{"pdf/SKILL.md": "one"}), "skills/ skills/x/ skills/x/SKILL.md"},
		"upwards":          {tarOf(t, file("../../../etc/passwd", "no"), file("/etc/shadow", "no"), file("a", "")), "skills/ skills/x/ skills/x/etc/ skills/x/etc/passwd skills/x/etc/shadow skills/x/a"},
		"links":            {tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, tar.Header{Name: "d", Typeflag: tar.TypeChar}, file("l/passwd", "no"), file("k", "")), "skills/ skills/x/ skills/x/l/ skills/x/l/passwd skills/x/k"},
		"a bomb":           {bomb(t, maxUnpacked+1, 4096), "!too large"},
		"a ratio":          {bomb(t, 40<<20, 40<<20), "!too large"},
		"many files":       {tarOf(t, many...), "!more than"},
		"a large zip":      {zipOf(t, entries), "!directory"},
		"a bomb in a zip":  {zipOf(t, map[string]string{"z": strings.Repeat("\x00", 64<<20)}), "!too large"},
		"deep":             {tarOf(t, file(strings.Repeat("d/", maxFolders+1)+"f", "")), "!the name"},
		"a long name":      {tarOf(t, file(strings.Repeat("n", 256), "")), "!the name"},
		"a file as folder": {tarOf(t, file("a", "x"), file("a/b", "y"), file("c", "")), "!is a file and a folder"},
		"not an archive":   {bytes.Repeat([]byte("x"), 4096), "!"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := Here(t.Context(), archiveOf(t, c.content), "skills/x", &out)
			if part, bad := strings.CutPrefix(c.want, "!"); bad {
				if err == nil || !strings.Contains(err.Error(), part) || out.Len() > 1<<20 {
					t.Errorf("%v, %d bytes", err, out.Len())
				}
				return
			}
			var names []string
			for r := tar.NewReader(&out); err == nil; {
				var h *tar.Header
				if h, err = r.Next(); err == nil {
					names = append(names, h.Name)
				}
			}
			if got := strings.Join(names, " "); err != io.EOF || got != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}
