package build

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template"
)

// privateRegistry lets only one user in. Its image is HOST/team/app:1.
func privateRegistry(t *testing.T, user, password string) (host string) {
	t.Helper()
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	host = strings.TrimPrefix(s.URL, "http://")
	ref, err := name.ParseReference(host + "/team/app:1")
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.Config(empty.Image, v1.Config{Env: []string{"FROM=private"}})
	if err == nil {
		err = remote.Write(ref, img, remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: user, Password: password})))
	}
	if err != nil {
		t.Fatal(err)
	}
	return host
}

func TestImagesOfPrivateRegistries(t *testing.T) {
	const password = "geheim-und-lang"
	host := privateRegistry(t, "me", password)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	w := newWorld(t)
	req := bothy.BuildRequest{Name: "made", Dockerfile: "FROM " + host + "/team/app:1\nRUN print it is " + password}
	if r := w.build(req); r.State != bothy.BuildFailed || !strings.Contains(r.Error, "does not let this server read") {
		t.Errorf("without a login: %+v", r.Build)
	}
	req.Registries = []bothy.RegistryLogin{{Host: host, Username: "me", Password: "wrong"}}
	if r := w.build(req); r.State != bothy.BuildFailed || !strings.Contains(r.Error, "does not let this server read") {
		t.Errorf("with a wrong login: %+v", r.Build)
	}
	req.Registries[0].Password = password
	r := w.build(req)
	if r.State != bothy.BuildSucceeded || r.template.Env["FROM"] != "private" || !strings.Contains(r.log, "it is ***") {
		t.Errorf("with its login: %+v, %s", r.Build, r.log)
	}
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		// The Dockerfile has it in this test, and so has what is made of that.
		if kept := strings.ReplaceAll(string(text), "it is "+password, ""); strings.Contains(kept, password) {
			t.Errorf("%s has the password", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// layerOf is a layer of a tar.
func layerOf(t *testing.T, content []byte) v1.Layer {
	t.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A Dockerfile may start from any image. What there is of bad ones is an error that says
// what, or harmless.
func TestImagesThatNobodyShouldTrust(t *testing.T) {
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	bend := func([]byte) []byte { return nil } // of layers
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			images.ServeHTTP(w, r)
			return
		}
		said := httptest.NewRecorder()
		images.ServeHTTP(said, r)
		body := said.Body.Bytes()
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if bent := bend(body); bent != nil && body[0] != '{' {
			body = bent
		}
		_, _ = w.Write(body)
	}))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	push := func(image string, img v1.Image, err error) {
		t.Helper()
		var ref name.Reference
		if err == nil {
			ref, err = name.ParseReference(host + "/" + image)
		}
		if err == nil {
			err = remote.Write(ref, img)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	layers := func(tars ...[]byte) (v1.Image, error) {
		all := make([]v1.Layer, len(tars))
		for i, content := range tars {
			all[i] = layerOf(t, content)
		}
		return mutate.AppendLayers(empty.Image, all...)
	}
	onbuild, err := mutate.Config(empty.Image, v1.Config{OnBuild: []string{"RUN something"}})
	push("onbuild", onbuild, err)
	many := make([][]byte, 200)
	for i := range many {
		many[i] = tarOf(fmt.Sprint("file", i), "", "last", fmt.Sprint(i))
	}
	deep, err := layers(many...)
	push("deep", deep, err)
	climbing, err := layers(tarOf("../../outside", "x"))
	push("climbing", climbing, err)
	var links bytes.Buffer
	tw := tar.NewWriter(&links)
	_ = tw.WriteHeader(&tar.Header{Name: "way", Typeflag: tar.TypeSymlink, Linkname: t.TempDir()})
	_ = tw.WriteHeader(&tar.Header{Name: "way/in", Typeflag: tar.TypeReg, Mode: 0o644})
	tw.Close()
	linked, err := layers(links.Bytes())
	push("linked", linked, err)
	whole, err := layers(tarOf("a", strings.Repeat("a", 9000)))
	push("whole", whole, err)

	for _, c := range []struct {
		image, want string
		bend        func([]byte) []byte
	}{
		{"onbuild", "the command ended with exit code 127: something", nil},
		{"deep", "", nil},
		{"climbing", "", nil},
		{"linked", "", nil},
		{"whole", "cannot fetch layer 1 of the image", func(b []byte) []byte { return b[:len(b)/2] }},
		{"whole", "cannot fetch layer 1 of the image", func(b []byte) []byte {
			b = bytes.Clone(b)
			b[len(b)-1] ^= 1
			return b
		}},
	} {
		bend = func([]byte) []byte { return nil }
		if c.bend != nil {
			bend = c.bend
		}
		w := newWorld(t)
		r := w.build(bothy.BuildRequest{Name: "made", Dockerfile: "FROM " + host + "/" + c.image + "\nWORKDIR /new"})
		if c.want == "" != (r.State == bothy.BuildSucceeded) || !strings.Contains(r.Error, c.want) {
			t.Errorf("%s: %s %s", c.image, r.State, r.Error)
		}
		if c.image == "deep" {
			if n, err := r.files.Get("/last"); err != nil || n.Data.Size != 3 {
				t.Errorf("of 200 layers the last is not on top: %v", err)
			}
		}
		if left, _ := os.ReadDir(w.work); len(left) != 0 {
			t.Errorf("%s has left %v", c.image, left)
		}
		if up, _ := filepath.Glob(filepath.Join(filepath.Dir(w.dir), "outside")); len(up) != 0 {
			t.Errorf("%s has written %v", c.image, up)
		}
	}
}

// Who knows a private image's digest, manifest and settings does not get its layers from what
// another project has fetched.
func TestImagesOfOthersAreNotInTheCache(t *testing.T) {
	img, err := mutate.AppendLayers(empty.Image, layerOf(t, tarOf("private", "yes")))
	if err != nil {
		t.Fatal(err)
	}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	withLayers := true
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		layers, _ := img.Layers()
		layer, _ := layers[0].Digest()
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, layer.String()) && !withLayers {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		images.ServeHTTP(w, r)
	}))
	defer s.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(s.URL, "http://") + "/team/app:1")
	if err == nil {
		err = remote.Write(ref, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.library = template.NewLibrary(filepath.Join(w.dir, "more"), template.Options{Transport: remote.DefaultTransport})
	w.Builder.o.Library = w.library
	req := bothy.BuildRequest{Dockerfile: "FROM " + ref.Name() + "\nWORKDIR /new"}
	if r := w.buildAs(w.as("first"), req); r.text("private") != "yes" {
		t.Fatalf("the first: %s", r.Error)
	}
	withLayers = false
	if r := w.buildAs(w.as("first"), req); r.State != bothy.BuildSucceeded {
		t.Errorf("the first, from the cache: %s", r.Error)
	}
	if r := w.buildAs(w.as("second"), req); r.State != bothy.BuildFailed || !strings.Contains(r.Error, "cannot fetch layer 1") {
		t.Errorf("the second: %s %s", r.State, r.Error)
	}
}

// The name of a built-in template that was not made here is never looked for in a registry,
// where anybody may have put an image under it.
func TestABuiltInTemplateIsNotFetched(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{Name: "made", Dockerfile: "FROM debian-12\nRUN print x"})
	if r.State != bothy.BuildFailed || !strings.Contains(r.Error, "line 1: the built-in template debian-12 has not been built on this server") {
		t.Errorf("%+v", r.Build)
	}
}
