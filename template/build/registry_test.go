package build

import (
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bothy-dev/bothy"
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
	if r := w.build(req); r.State != bothy.BuildFailed || !strings.Contains(r.Error, "does not let this server have") {
		t.Errorf("without a login: %+v", r.Build)
	}
	req.Registries = []bothy.RegistryLogin{{Host: host, Username: "me", Password: "wrong"}}
	if r := w.build(req); r.State != bothy.BuildFailed || !strings.Contains(r.Error, "does not let this server have") {
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
