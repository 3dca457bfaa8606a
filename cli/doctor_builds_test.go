//go:build linux && !clientonly

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/lifecycle/register"

	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/server"
)

func TestDoctorSaysWhoNeedsWhichBuild(t *testing.T) {
	c := config.Default()
	c.Home = t.TempDir()
	if r := checkBuilds(c); r.Status != doctor.OK || !strings.Contains(r.Detail, "none is kept") {
		t.Errorf("of nothing: %+v", r)
	}
	program := filepath.Join(t.TempDir(), "sentry")
	if err := os.WriteFile(program, make([]byte, 3<<20), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := builds.Open(server.BuildsFolder(c), builds.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"build-a", "build-b"} {
		b := builds.Build{Name: name, Engine: "gvisor", Versions: []string{"v-of-" + name}}
		if _, err := s.Put(b, []builds.Source{{From: program, Role: "sentry"}}); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path string, v any) {
		t.Helper()
		b, _ := json.Marshal(v)
		path = filepath.Join(c.Home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for id, build := range map[string]string{"snp1": "build-a", "snp2": "build-a", "snp3": "build-z"} {
		write("snapshots/"+id+"/manifest.json", map[string]string{"kind": "memory", "engine_build": build})
	}
	write("snapshots/snp4/manifest.json", map[string]string{"kind": "files", "engine_build": "build-y"})
	write("register/running/sbx1.json", register.Entry{ID: "sbx1", EngineState: []byte(`{"build":"build-a"}`)})
	r := checkBuilds(c)
	for _, want := range []string{
		"3 MB in all", "build-a (v-of-build-a; 3 MB; needed by 2 snapshots and 1 running sandbox)", "build-b (v-of-build-b; 3 MB; needed by nothing)",
		"build-z is not kept, and needed by 1 snapshot",
	} {
		if !strings.Contains(r.Detail, want) {
			t.Errorf("%q is not in %q", want, r.Detail)
		}
	}
	if r.Status != doctor.OK || strings.Contains(r.Detail, "build-y") {
		t.Errorf("%+v", r)
	}
	c.Engines.Refuse = []string{"v-of-build-a"}
	if r := checkBuilds(c); r.Status != doctor.Warn || !strings.Contains(r.Detail, "refused by v-of-build-a in engines.refuse") || r.Fix == "" {
		t.Errorf("of a refused one: %+v", r)
	}
	c.Engines.Refuse = []string{"short"}
	if r := checkBuilds(c); r.Status != doctor.Fail {
		t.Errorf("of a bad list: %+v", r)
	}
}
