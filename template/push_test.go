package template

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	filetree "github.com/bothy-dev/bothy/template/tree"
)

func TestAPushedTemplateCanBeImported(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	l := library(t, Options{}, "tools")
	c := as(t, bothy.ScopeTemplatesRead, bothy.ScopeTemplatesWrite)
	of := config("GREETING=hello", "PATH=/usr/bin:/bin")
	of.Entrypoint, of.Cmd, of.StopSignal, of.OnBuild = []string{"/serve"}, []string{"all"}, "SIGINT", []string{"RUN true"}
	of.ExposedPorts, of.Volumes = map[string]struct{}{"80/tcp": {}}, map[string]struct{}{"/data": {}}
	of.Healthcheck = &v1.HealthConfig{Test: []string{"CMD", "true"}, Interval: 5 * time.Second, Timeout: time.Second, StartPeriod: time.Minute, Retries: 2}
	img := image(t, of, layer(t, entry{name: "new", content: "content"}, entry{name: "other", content: "x"}))
	made, err := l.BuildTemplate(c, bothy.TemplateBuild{Name: "app", Image: push(t, img)}, nil)
	must(t, err)
	ref := host + "/team/app:v1"
	one, err := l.PushTemplate(c, "app", bothy.TemplatePush{Reference: ref})
	must(t, err)
	two, err := l.PushTemplate(c, "app", bothy.TemplatePush{Reference: host + "/team/again:v1"})
	must(t, err)
	if one.Digest == "" || one.Digest != two.Digest || one.Reference != host+"/team/app@"+one.Digest || one.SizeBytes < 100 {
		t.Errorf("pushed %+v and %+v", one, two)
	}
	back, err := l.BuildTemplate(c, bothy.TemplateBuild{Name: "back", Image: one.Reference}, nil)
	must(t, err)
	if back.Env["GREETING"] != "hello" || back.Env["PATH"] != made.Env["PATH"] || back.Cwd != made.Cwd {
		t.Errorf("it was imported as %+v", back)
	}
	want := &bothy.ImageConfig{
		Entrypoint: []string{"/serve"}, Cmd: []string{"all"}, StopSignal: "SIGINT", OnBuild: []string{"RUN true"}, ExposedPorts: []string{"80/tcp"}, Volumes: []string{"/data"},
		Healthcheck: &bothy.Healthcheck{Test: []string{"CMD", "true"}, IntervalSeconds: 5, TimeoutSeconds: 1, StartPeriodSeconds: 60, Retries: 2},
	}
	for what, got := range map[string]*bothy.Template{"the image": made, "what was pushed": back} {
		if diff := cmp.Diff(want, got.Image, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s was imported with other settings:\n%s", what, diff)
		}
	}
	if want, got := listing(t, row(t, l, made)), listing(t, row(t, l, back)); want != got {
		t.Errorf("it had\n%s\nand was imported with\n%s", want, got)
	}

	shut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer shut.Close()
	for _, bad := range []struct {
		template, ref string
		code          bothy.Code
		says          string
	}{
		{"none", ref, bothy.CodeTemplateNotFound, "none"},
		{"app", "no reference", bothy.CodeInvalid, "no reference"},
		{"app", one.Reference, bothy.CodeInvalid, "pushed"},
		{"app", "/tmp/app.tar", bothy.CodeInvalid, "pushed"},
		{"app", "./app.tar", bothy.CodeInvalid, "pushed"},
		{"app", strings.TrimPrefix(shut.URL, "http://") + "/a:1", bothy.CodeTemplateInvalid, "does not let"},
		{"app", "127.0.0.1:1/a:1", bothy.CodeTemplateInvalid, "cannot reach the registry"},
	} {
		_, err := l.PushTemplate(c, bad.template, bothy.TemplatePush{Reference: bad.ref})
		fails(t, err, bad.code, bad.says)
	}
	_, err = l.PushTemplate(project(t, "research"), "app", bothy.TemplatePush{Reference: ref})
	fails(t, err, bothy.CodeTemplateInvalid, "does not let projects use registries")
}

// listing lists the files of an image as text.
func listing(t *testing.T, of *store.Template) string {
	t.Helper()
	files, err := filetree.Read(t.Context(), of.RootFS)
	must(t, err)
	var b strings.Builder
	must(t, filetree.Walk(files.Root(), func(name string, n *filetree.Node) error {
		text := n.Target
		if n.IsFile() {
			content, err := n.Data.Read(1 << 20)
			if err != nil {
				return err
			}
			text = string(content)
		}
		b.WriteString(strings.Join([]string{name, n.Time.UTC().String(), text}, " "))
		b.WriteByte('\n')
		return nil
	}))
	return b.String()
}
