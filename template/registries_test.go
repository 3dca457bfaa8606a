package template

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// leadsTo is a network in which every address leads to one server.
func leadsTo(server string) *http.Transport {
	to := strings.TrimPrefix(server, "http://")
	return &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}}
}

// Plain HTTP is used only with registries for which the operator allows it.
func TestPlainHTTPOnlyWhenAsked(t *testing.T) {
	images := registry.New(registry.Logger(quiet()))
	var asked, logins atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			logins.Add(1)
		}
		images.ServeHTTP(w, r)
	}))
	defer s.Close()
	to, err := name.ParseReference(strings.TrimPrefix(s.URL, "http://") + "/team/tools:1")
	must(t, err)
	must(t, remote.Write(to, small(t)))
	asked.Store(0)
	const host = "10.1.2.3:5000"
	login := []bothy.RegistryLogin{{Host: host, Username: "me", Password: "secret"}}
	shut := NewLibrary(t.TempDir(), Options{Transport: leadsTo(s.URL)})
	_, err = shut.OpenImage(t.Context(), "research", host+"/team/tools:1", login)
	fails(t, err, bothy.CodeTemplateInvalid, "TLS", "registries.plain_http")
	if asked.Load() != 0 || logins.Load() != 0 {
		t.Errorf("the registry got %d requests, %d with the login", asked.Load(), logins.Load())
	}
	open := NewLibrary(t.TempDir(), Options{Transport: leadsTo(s.URL), Registries: Registries{PlainHTTP: []string{host}}})
	if _, err = open.OpenImage(t.Context(), "research", host+"/team/tools:1", login); err != nil {
		t.Errorf("a registry with plain HTTP allowed: %v", err)
	}
}

// A mirror is asked first, and the registry if the mirror does not have the image.
func TestMirrors(t *testing.T) {
	tagged := func(tag string) (host string) {
		return pushAs(t, image(t, v1.Config{Labels: map[string]string{"tag": tag}}, layer(t, entry{name: "tag", content: tag})), "team/tools:"+tag)
	}
	mirror, origin := tagged("1"), tagged("2")
	l := NewLibrary(t.TempDir(), Options{
		Transport: leadsTo("http://" + origin),
		Registries: Registries{PlainHTTP: []string{"registry.example.com"}, Mirrors: map[string][]string{
			"registry.example.com": {"127.0.0.1:1", mirror}, "other.example.com": {origin},
		}},
	})
	open := func(ref string) (v1.Image, error) {
		return l.OpenImage(t.Context(), "research", "registry.example.com/team/tools"+ref, nil)
	}
	for _, tag := range []string{":1", ":2"} {
		img, err := open(tag)
		if err != nil {
			t.Fatalf("%s: %v", tag, err)
		}
		digest, err := img.Digest()
		must(t, err)
		if _, err := open("@" + digest.String()); err != nil {
			t.Errorf("%s by digest: %v", tag, err)
		}
	}
	_, err := open(":3")
	fails(t, err, bothy.CodeTemplateInvalid, "no image", "registry.example.com/team/tools:3")
	l = NewLibrary(t.TempDir(), Options{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the registry is unavailable")
	}}, Registries: l.opts.Registries})
	if _, err := open(":1"); err != nil {
		t.Errorf("while the registry is unavailable: %v", err)
	}
	for _, bad := range []Registries{
		{PlainHTTP: []string{"http://a.example.com"}}, {Mirrors: map[string][]string{"": {mirror}}}, {Mirrors: map[string][]string{"docker.io": {"a/b"}}},
	} {
		fails(t, bad.Check(), bothy.CodeInvalid, "host of a registry")
	}
}

// Answers of a registry are validated.
func TestRegistriesThatLieOrStop(t *testing.T) {
	host := pushAs(t, small(t), "team/tools:1")
	for _, c := range []struct {
		name string
		bend func(path string, body []byte) ([]byte, bool)
		word string
	}{
		{"another layer", func(path string, body []byte) ([]byte, bool) {
			if body[0] != '{' {
				body[len(body)-1] ^= 1
			}
			return body, strings.Contains(path, "/blobs/")
		}, "checksum"},
		{"another configuration", func(path string, body []byte) ([]byte, bool) {
			return []byte(strings.Replace(string(body), "linux", "other", 1)), strings.Contains(path, "/blobs/") && body[0] == '{'
		}, "checksum"},
		{"half a layer", func(path string, body []byte) ([]byte, bool) {
			return body[:len(body)/2], strings.Contains(path, "/blobs/") && body[0] != '{'
		}, "unexpected EOF"},
		{"no manifest", func(path string, _ []byte) ([]byte, bool) {
			return []byte("<html>"), strings.Contains(path, "/manifests/")
		}, "is invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(bent(t, host, c.word == "unexpected EOF", c.bend))
			defer s.Close()
			l := NewLibrary(t.TempDir(), Options{})
			_, err := l.BuildTemplate(as(t, bothy.ScopeAdmin), bothy.TemplateBuild{Name: "tools", Image: strings.TrimPrefix(s.URL, "http://") + "/team/tools:1"}, nil)
			fails(t, err, bothy.CodeTemplateInvalid, c.word)
			if _, err := l.Lookup("tools"); bothy.ErrorCode(err) != bothy.CodeTemplateNotFound {
				t.Errorf("files are left: %v", err)
			}
		})
	}
}

// bent is a proxy of a registry that changes its answers.
func bent(t *testing.T, host string, cut bool, bend func(path string, body []byte) ([]byte, bool)) http.Handler {
	t.Helper()
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
	p.ErrorLog = quiet()
	p.ModifyResponse = func(r *http.Response) error {
		if r.Request.Method == http.MethodHead {
			return nil
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) == 0 {
			return err
		}
		if changed, ok := bend(r.Request.URL.Path, body); ok {
			body = changed
			r.Header.Del("Docker-Content-Digest")
		}
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		if cut {
			r.Header.Set("Content-Length", strconv.Itoa(2*len(body)))
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		return nil
	}
	return p
}

func TestManyLayers(t *testing.T) {
	var layers []v1.Layer
	for i := range 200 {
		layers = append(layers, layer(t, entry{name: "n", content: strings.Repeat("x", i)}))
	}
	img, err := mutate.AppendLayers(empty.Image, layers...)
	must(t, err)
	file, err := img.ConfigFile()
	must(t, err)
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	img, err = mutate.ConfigFile(img, file)
	must(t, err)
	_, dir := buildImage(t, img)
	has(t, dir, "n", strings.Repeat("x", 199))
}

func TestARegistrysOwnWords(t *testing.T) {
	for _, c := range []struct {
		err  *transport.Error
		want string
	}{
		{&transport.Error{StatusCode: 429, Errors: []transport.Diagnostic{{Code: "TOOMANYREQUESTS", Message: "slow\x07 down"}}}, "the registry answered 429 for a/b: slow  down"},
		{&transport.Error{StatusCode: 500, Errors: []transport.Diagnostic{{Code: "UNKNOWN"}, {Code: "UNKNOWN", Message: "no disk"}}}, "the registry answered 500 for a/b: UNKNOWN; no disk"},
		{&transport.Error{StatusCode: 502}, "the registry answered 502 for a/b"},
	} {
		for _, of := range []func(string, error) error{pullError, pushError} {
			if got := bothy.AsError(of("a/b", c.err)).Detail; got != c.want {
				t.Errorf("%q", got)
			}
		}
	}
	long := &transport.Error{StatusCode: 500, Errors: []transport.Diagnostic{{Message: strings.Repeat("ä", 50_000)}}}
	if got := bothy.AsError(pullError("a/b", long)).Detail; len(got) > maxWords+100 {
		t.Errorf("it has %d bytes", len(got))
	}
}
