package apart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/internal/confined"
	"github.com/bothy-dev/bothy/template/tree"
)

func TestMain(m *testing.M) {
	if run := confined.Serve(Tasks()...); run != nil {
		os.Exit(run())
	}
	_ = confined.Try(context.Background()) // the tests say so
	os.Exit(m.Run())
}

func needProcess(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	if !confined.Possible() {
		t.Fatal(confined.Try(t.Context()))
	}
}

// costs returns how many bytes this process allocates for f, which others cannot make more.
func costs(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// cheap is more than a process of its own costs the server.
const cheap = 4 << 20

func gzipped(t *testing.T, plain io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.Copy(w, plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// fileOf is a file with some content.
func fileOf(t *testing.T, content []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	return f
}

func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(w, zeros{}, h.Size); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDecompress(t *testing.T) {
	needProcess(t)
	const text = "a text that is long enough to begin with what no magic does"
	for name, from := range map[string][]byte{"plain": []byte(text), "gzip": gzipped(t, strings.NewReader(text)), "short": []byte("a"), "empty": nil} {
		r, err := Decompress(t.Context(), bytes.NewReader(from), 1000)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || r.Close() != nil || len(from) > 1 && string(got) != text {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	// A reader that leaves early ends the process.
	r, err := Decompress(t.Context(), io.MultiReader(bytes.NewReader(gzipped(t, io.LimitReader(zeros{}, 1<<20))), zeros{}), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil || r.Close() != nil {
		t.Error(err)
	}
}

// What is compressed in order to harm costs the server nothing, and says what is wrong.
func TestBombs(t *testing.T) {
	needProcess(t)
	bomb := gzipped(t, io.LimitReader(zeros{}, 20<<20))
	wide := []byte("\x28\xb5\x2f\xfd\x00\x98\x29\x00\x00hello") // with a window of 512 MB
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"a bomb":          {bomb, "more than 10 MB"},
		"a wide window":   {wide, "more than 64 MB in its window"},
		"not what it is":  {[]byte("\x1f\x8b\x07 and no more of it"), "gzip: invalid header"},
		"an end too soon": {bomb[:1000], "unexpected EOF"},
	} {
		took := costs(func() {
			r, err := Decompress(t.Context(), bytes.NewReader(c.text), 10<<20)
			if err != nil {
				t.Error(name, err)
				return
			}
			defer r.Close()
			_, err = io.Copy(io.Discard, r)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if _, ok := errors.AsType[*bounded.Error](err); name == "a bomb" && !ok {
				t.Errorf("%s: %T", name, err)
			}
		})
		if took > cheap {
			t.Errorf("%s costs the server %d bytes", name, took)
		}
	}
}

// The list is the one that this process would make.
func TestList(t *testing.T) {
	needProcess(t)
	text := tarOf(t,
		tar.Header{Name: "a/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 3, Gid: 4, ModTime: time.Unix(-5, 0)},
		tar.Header{Name: "a/" + strings.Repeat("long", 60), Typeflag: tar.TypeReg, Size: 700, PAXRecords: map[string]string{"SCHILY.xattr.user.a": "\x01", "SCHILY.xattr.user.b": ""}},
		tar.Header{Name: "a/link", Typeflag: tar.TypeSymlink, Linkname: "../b"},
		tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
	)
	var here, there []string
	say := func(to *[]string) func(h *tar.Header, offset int64) error {
		return func(h *tar.Header, offset int64) error {
			*to = append(*to, fmt.Sprintf("%c %s %s %o %d:%d %v %d,%d %d+%d %q %q", h.Typeflag, h.Name, h.Linkname, h.Mode, h.Uid, h.Gid,
				h.ModTime.UTC(), h.Devmajor, h.Devminor, offset, h.Size, h.PAXRecords["SCHILY.xattr.user.a"], h.PAXRecords["SCHILY.xattr.user.b"]))
			return nil
		}
	}
	err := errors.Join(tree.List(t.Context(), fileOf(t, text), 10, say(&here)), List(t.Context(), fileOf(t, text), 10, say(&there)))
	if err != nil || len(here) != 4 || strings.Join(here, "\n") != strings.Join(there, "\n") {
		t.Errorf("%v\n%s\n\n%s", err, strings.Join(here, "\n"), strings.Join(there, "\n"))
	}
}

// Tars that are made in order to harm cost the server nothing, and are refused as they are without a
// process.
func TestHostileTars(t *testing.T) {
	needProcess(t)
	long := strings.Repeat("x", 900<<10)
	var many []tar.Header
	for range 3 {
		many = append(many, tar.Header{Name: "x", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"BOTHY.a": long}})
	}
	whole := tarOf(t, tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: 1 << 20})
	for name, text := range map[string][]byte{
		"deep":           tarOf(t, tar.Header{Name: strings.Repeat("d/", 1000), Typeflag: tar.TypeDir}),
		"a huge header":  tarOf(t, tar.Header{Name: "x", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"SCHILY.xattr.user.x": long}}),
		"huge headers":   tarOf(t, many...),
		"a long name":    tarOf(t, tar.Header{Name: long, Typeflag: tar.TypeReg}),
		"no end":         whole[:2000],
		"no tar":         bytes.Repeat([]byte("x"), 2000),
		"too many files": tarOf(t, make([]tar.Header, 20)...),
	} {
		none := func(*tar.Header, int64) error { return nil }
		want := tree.List(t.Context(), fileOf(t, text), 10, none)
		f := fileOf(t, text)
		took := costs(func() {
			if err := List(t.Context(), f, 10, none); err == nil || want == nil || err.Error() != want.Error() {
				t.Errorf("%s: %v, not %v", name, err, want)
			}
		})
		if took > cheap/4 {
			t.Errorf("%s costs the server %d bytes", name, took)
		}
	}
	stop := errors.New("stop")
	err := List(t.Context(), fileOf(t, tarOf(t, make([]tar.Header, 20)...)), 100, func(*tar.Header, int64) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("a caller that stops: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := List(ctx, fileOf(t, whole), 10, func(*tar.Header, int64) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that has ended: %v", err)
	}
}

// The document is the one that this process would make, and a damaged image is an error that says so.
func TestSBOM(t *testing.T) {
	needProcess(t)
	files := tree.New(time.Unix(0, 0))
	for name, text := range map[string]string{
		"etc/os-release": "ID=debian\nVERSION_ID=12\n", "a.dist-info/METADATA": "Name: x\nVersion: 1\n\n" + strings.Repeat("text\n", 3000),
		"var/lib/dpkg/status": "Package: bash\nStatus: install ok installed\nVersion: 5\n",
	} {
		if err := files.Put(name, &tree.Node{Mode: unix.S_IFREG, Data: tree.Text(text)}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := files.Write(path, tree.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	about := &bothy.Template{Name: "t", Tag: "v1", Digest: "sha256:" + strings.Repeat("a", 64), Description: "d", CreatedAt: time.Unix(1e9, 0)}
	for _, format := range []string{bothy.SBOMSPDX, bothy.SBOMCycloneDX} {
		apart, err := SBOM(t.Context(), path, about, format)
		if err != nil || !bytes.Contains(apart, []byte("pkg:deb/debian/bash@5?distro=debian-12")) || !bytes.Contains(apart, []byte("pkg:pypi/x@1")) {
			t.Fatal(string(apart), err)
		}
	}
	if _, err := SBOM(t.Context(), path, about, "other"); bothy.ErrorCode(err) != bothy.CodeInvalid || bothy.AsError(err).Hint == "" {
		t.Errorf("another format: %v", err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte{1}, 9000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := SBOM(t.Context(), path, about, bothy.SBOMSPDX); err == nil || !strings.Contains(err.Error(), "is not an EROFS image") {
		t.Errorf("no image: %v", err)
	}
}
