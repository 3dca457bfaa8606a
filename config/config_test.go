package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func none(string) string { return "" }

func TestExampleShowsEveryKeyWithItsDefault(t *testing.T) {
	var c Config
	if err := c.parse([]byte(Example)); err != nil {
		t.Fatal(err)
	}
	want := Default()
	// An empty list in the file is not a nil one.
	want.AllowedHosts, want.Network.Allow, want.Network.Forbid = c.AllowedHosts, c.Network.Allow, c.Network.Forbid
	if !reflect.DeepEqual(c, want) {
		t.Errorf("the example says\n%+v\nand the defaults are\n%+v", c, want)
	}
	keys(t, reflect.TypeOf(c))
}

// keys checks that the example names every key of the struct.
func keys(t *testing.T, typ reflect.Type) {
	for f := range typ.Fields() {
		key := f.Tag.Get("yaml")
		if key == "" || !strings.Contains(Example, key+":") {
			t.Errorf("the example does not show %s (%q)", f.Name, key)
		}
		if f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == typ.PkgPath() {
			keys(t, f.Type)
		}
	}
}

func TestFileEnvironmentAndMistakes(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		p := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	c, err := Load(write("listen: 127.0.0.1:1\nsandboxes: {max: 5}\n"), func(k string) string {
		if k == "BOTHY_LISTEN" {
			return "127.0.0.1:2"
		}
		return ""
	})
	if err != nil || c.Listen != "127.0.0.1:2" || c.Sandboxes.Max != 5 || c.Sandboxes.KeepEndedHours != 168 {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := Load(write("listn: x\n"), none); bothy.ErrorCode(err) != bothy.CodeInvalid || !strings.Contains(err.Error(), "listn") {
		t.Errorf("a misspelt key: %v", err)
	}
	if _, err := Load(filepath.Join(dir, "none"), none); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("a missing file: %v", err)
	}
	c = Default()
	c.LogFormat = "xml"
	if err := c.Finish(); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("a wrong log format: %v", err)
	}
}

func TestPoolSettings(t *testing.T) {
	pool := func(v string) func(string) string {
		return func(k string) string {
			if k == "BOTHY_POOL" {
				return v
			}
			return ""
		}
	}
	if c, err := Load("", pool("off")); err != nil || !reflect.DeepEqual(c.Pool, Pool{}) {
		t.Errorf("the pool that is off is %+v, %v", c.Pool, err)
	}
	if c, err := Load("", pool("on")); err != nil || c.Pool.ReadyMax == 0 {
		t.Errorf("the pool that is on is %+v, %v", c.Pool, err)
	}
	if _, err := Load("", pool("of")); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("a word that means nothing: %v", err)
	}
	for _, spoil := range []func(*Pool){
		func(p *Pool) { p.Ready = -1 }, func(p *Pool) { p.ReadyMax = -1 }, func(p *Pool) { p.Spares = -1 },
		func(p *Pool) { p.GoldenMax = -1 }, func(p *Pool) { p.MinFreeMemoryMB = -1 },
		func(p *Pool) { p.Templates = []string{"../x"} },
	} {
		c := Default()
		spoil(&c.Pool)
		if err := c.Finish(); bothy.ErrorCode(err) != bothy.CodeInvalid || bothy.AsError(err).Hint == "" {
			t.Errorf("%+v: %v", c.Pool, err)
		}
	}
}
