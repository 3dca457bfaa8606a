package template

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func as(t *testing.T, scopes ...bothy.Scope) context.Context {
	return bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: scopes})
}

// entry is an entry of a layer: a folder if its name ends with a slash, a link if it has a target.
type entry struct {
	name    string
	content string
	symlink string
	link    string
	mode    int64
	uid     int
	kind    byte
}

func layer(t *testing.T, entries ...entry) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Uid: e.uid, Gid: e.uid, Typeflag: tar.TypeReg, Size: int64(len(e.content))}
		switch {
		case e.kind != 0:
			h.Typeflag = e.kind
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag = tar.TypeDir
		case e.symlink != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.symlink
		case e.link != "":
			h.Typeflag, h.Linkname = tar.TypeLink, e.link
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		must(t, w.WriteHeader(h))
		_, err := w.Write([]byte(e.content))
		must(t, err)
	}
	must(t, w.Close())
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	must(t, err)
	return l
}

func image(t *testing.T, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	must(t, err)
	file, err := img.ConfigFile()
	must(t, err)
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	img, err = mutate.ConfigFile(img, file)
	must(t, err)
	return img
}

// push puts an image into a registry of this test and returns its reference.
func push(t *testing.T, img v1.Image) string {
	t.Helper()
	return pushAs(t, img, "team/tools:1") + "/team/tools:1"
}

// pushAs puts an image into a new registry and returns the registry's host.
func pushAs(t *testing.T, img v1.Image, as string) (host string) {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(quiet())))
	t.Cleanup(s.Close)
	host = strings.TrimPrefix(s.URL, "http://")
	ref, err := name.ParseReference(host + "/" + as)
	must(t, err)
	must(t, remote.Write(ref, img, remote.WithContext(t.Context())))
	return host
}

// small is an image with a file that passes for a shell.
func small(t *testing.T) v1.Image {
	return image(t, v1.Config{}, layer(t,
		entry{name: "bin/"}, entry{name: "bin/sh", content: "a shell"}, entry{name: "etc/"},
		entry{name: "etc/passwd", content: "root:x:0:0:root:/root:/bin/sh\n", mode: 0o644}))
}

// row returns the stored record of a template.
func row(t *testing.T, l *Library, of *bothy.Template) *store.Template {
	t.Helper()
	found, err := l.Find(of.Project, of.Name+"@"+of.Digest)
	must(t, err)
	return found
}

// buildImage makes a template from an image and returns it and a folder with its files.
func buildImage(t *testing.T, img v1.Image) (*store.Template, string) {
	t.Helper()
	l := NewLibrary(t.TempDir(), Options{})
	tmpl, err := l.BuildTemplate(as(t, bothy.ScopeAdmin), bothy.TemplateBuild{Name: "tools", Image: push(t, img)}, nil)
	must(t, err)
	return row(t, l, tmpl), unpackImageFile(t, row(t, l, tmpl).RootFS)
}

// unpackImageFile extracts an EROFS image with fsck.erofs.
func unpackImageFile(t *testing.T, path string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "rootfs")
	out, err := exec.CommandContext(t.Context(), "fsck.erofs", "--extract="+dir, path).CombinedOutput()
	if err != nil {
		t.Fatalf("fsck.erofs: %v: %s", err, out)
	}
	return dir
}

// tree lists the paths below a folder.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var paths []string
	must(t, fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		paths = append(paths, p)
		return err
	}))
	return paths
}

func has(t *testing.T, dir, path, content string) {
	t.Helper()
	if data, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(data) != content {
		t.Errorf("%s holds %q, %v; want %q", path, data, err, content)
	}
}

func hasNot(t *testing.T, dir, path string) {
	t.Helper()
	if slices.Contains(tree(t, dir), path) {
		t.Errorf("%s exists", path)
	}
}

func owner(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// fails checks that an error has a code, a hint, and these words.
func fails(t *testing.T, err error, code bothy.Code, words ...string) {
	t.Helper()
	if got := bothy.ErrorCode(err); got != code {
		t.Fatalf("code %q, want %q: %v", got, code, err)
	}
	e := bothy.AsError(err)
	if e.Hint == "" {
		t.Errorf("no hint: %v", err)
	}
	for _, w := range words {
		if !strings.Contains(e.Detail+" "+e.Hint, w) {
			t.Errorf("%q is not in: %s %s", w, e.Detail, e.Hint)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
