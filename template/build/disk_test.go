package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"
)

// bomb is a compressed tar of one large file of nothing.
func bomb(t *testing.T, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "zeros", Typeflag: tar.TypeReg, Mode: 0o644, Size: size}); err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range size >> 20 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	z.Close()
	return b.Bytes()
}

// What is small in a registry or in an upload, and large on the disk, ends before the
// host's disk does, and leaves nothing.
func TestBombs(t *testing.T) {
	small := bomb(t, 256<<20)
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	ref, err := name.ParseReference(host + "/team/bomb:1")
	if err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(small)), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err == nil {
		err = remote.Write(ref, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	archive := w.upload("a.tar.gz", string(small))
	w.Builder.o.MinFreeDisk = 2 << 30
	const before = 2<<30 + 100<<20
	w.Builder.free = func(dir string) (int64, error) { return before - written(t, dir), nil }

	for what, req := range map[string]bothy.BuildRequest{
		"an image":   {Dockerfile: "FROM " + host + "/team/bomb:1"},
		"an archive": {Dockerfile: "FROM base\nADD a.tar.gz /", ContextID: archive},
	} {
		r := w.build(req)
		if r.Code != bothy.CodeDiskFull || r.Hint == "" {
			t.Errorf("%s: %s %s (%s)", what, r.Code, r.Error, r.Hint)
		}
		if n := written(t, w.Builder.work); n != 0 {
			t.Errorf("%s has left %d bytes", what, n)
		}
	}
	had := written(t, w.Builder.contexts())
	_, err = w.UploadContext(w.me(), bytes.NewReader(small))
	if bothy.ErrorCode(err) != bothy.CodeDiskFull {
		t.Errorf("an upload: %v", err)
	}
	if n := written(t, w.Builder.contexts()); n != had {
		t.Errorf("the upload has left %d bytes", n-had)
	}
}

// written is how many bytes there are in a folder.
func written(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func TestAFullDiskIsNamed(t *testing.T) {
	w := newWorld(t)
	w.refuseSave = unix.ENOSPC
	r := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN write /a b"})
	if r.Code != bothy.CodeDiskFull || !strings.Contains(r.Error, "no room") {
		t.Errorf("%s %s", r.Code, r.Error)
	}
}
