package template

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Builds for a project use the server's network, but neither its logins at registries nor its access
// to private addresses.
func TestProjectsAreAnonymousAtRegistries(t *testing.T) {
	var shown atomic.Value
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		shown.Store(user)
		// It asks for a login, but accepts any login, and images without one.
		if r.URL.Path == "/v2/" && user == "" {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	ref, err := name.ParseReference(host + "/team/app:1")
	if err != nil {
		t.Fatal(err)
	}
	login := t.TempDir()
	t.Setenv("DOCKER_CONFIG", login)
	text, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"username": "operator", "password": "secret"}}})
	if err == nil {
		err = os.WriteFile(filepath.Join(login, "config.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	direct := httptest.NewServer(images)
	defer direct.Close()
	to, err := name.ParseReference(strings.TrimPrefix(direct.URL, "http://") + "/team/app:1")
	if err == nil {
		err = remote.Write(to, empty.Image)
	}
	if err != nil {
		t.Fatal(err)
	}

	open := NewLibrary(t.TempDir(), Options{Transport: &http.Transport{}})
	if _, err := open.OpenImage(t.Context(), bothy.DefaultProject, ref.Name(), nil); err != nil || shown.Load() != "operator" {
		t.Errorf("the operator's user is %v: %v", shown.Load(), err)
	}
	if _, err := open.OpenImage(t.Context(), "research", ref.Name(), nil); shown.Load() != "" {
		t.Errorf("a project's user is %v: %v", shown.Load(), err)
	}
	elsewhere := bothy.RegistryLogin{Host: "registry.example.com", Username: "other", Password: "secret"}
	given := bothy.RegistryLogin{Host: host, Username: "given", Password: "secret"}
	for project, want := range map[string]string{"research": "", bothy.DefaultProject: "operator"} {
		if _, err := open.OpenImage(t.Context(), project, ref.Name(), []bothy.RegistryLogin{elsewhere}); shown.Load() != want {
			t.Errorf("with another registry's login the user of %s is %v: %v", project, shown.Load(), err)
		}
		if _, err := open.OpenImage(t.Context(), project, ref.Name(), []bothy.RegistryLogin{elsewhere, given}); err != nil || shown.Load() != "given" {
			t.Errorf("with a login the user of %s is %v: %v", project, shown.Load(), err)
		}
	}
	for _, bad := range []bothy.RegistryLogin{{Username: "a", Password: "b"}, {Host: host}, {Host: "not a host", Username: "a"}} {
		_, err := open.OpenImage(t.Context(), "research", ref.Name(), []bothy.RegistryLogin{bad})
		fails(t, err, bothy.CodeInvalid, "registry")
	}
	shown.Store("no request")
	for _, shut := range []*Library{
		NewLibrary(t.TempDir(), Options{}),
		NewLibrary(t.TempDir(), Options{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("not for projects")
		}}}),
	} {
		_, err := shut.OpenImage(t.Context(), "research", ref.Name(), nil)
		if bothy.ErrorCode(err) != bothy.CodeTemplateInvalid || shown.Load() != "no request" {
			t.Errorf("a refused address: %v, and the registry's user is %v", err, shown.Load())
		}
	}
}
