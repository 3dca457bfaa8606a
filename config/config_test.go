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
	want.TLS.ACME.Domains = c.TLS.ACME.Domains
	want.TrustedProxies = c.TrustedProxies
	want.Snapshots.TrustedKeys, want.Engines.Refuse = c.Snapshots.TrustedKeys, c.Engines.Refuse
	want.Webhooks.Allow = c.Webhooks.Allow
	want.Registries = c.Registries
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
	for url, fine := range map[string]bool{
		"": true, "postgres://h/d": true, "postgresql://u@h:1/d?sslmode=disable": true,
		"mysql://u:geheim@h/d": false, "host=h password=geheim": false, "bothy.db": false,
	} {
		c, err := Load("", func(k string) string {
			if k == "BOTHY_STORE" {
				return url
			}
			return ""
		})
		if err == nil {
			err = c.Finish()
		}
		if (err == nil) != fine || c.Store != url {
			t.Errorf("the store %q: %v", url, err)
		}
		if err != nil && (strings.Contains(err.Error(), "geheim") || bothy.AsError(err).Hint == "") {
			t.Errorf("the store %q: %v", url, err)
		}
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
	for _, damage := range []func(*Pool){
		func(p *Pool) { p.Ready = -1 }, func(p *Pool) { p.ReadyMax = -1 }, func(p *Pool) { p.Spares = -1 },
		func(p *Pool) { p.GoldenMax = -1 }, func(p *Pool) { p.MinFreeMemoryMB = -1 },
		func(p *Pool) { p.Templates = []string{"../x"} },
	} {
		c := Default()
		damage(&c.Pool)
		if err := c.Finish(); bothy.ErrorCode(err) != bothy.CodeInvalid || bothy.AsError(err).Hint == "" {
			t.Errorf("%+v: %v", c.Pool, err)
		}
	}
}

func TestListeningAndTLS(t *testing.T) {
	for _, x := range []struct {
		change func(*Config)
		wrong  string
	}{
		{func(c *Config) {}, ""},
		{func(c *Config) { c.Listen = "localhost:7700" }, ""},
		{func(c *Config) { c.Listen = "[::1]:7700" }, ""},
		{func(c *Config) { c.Listen = "127.9.9.9:0" }, ""},
		{func(c *Config) { c.Listen = "0.0.0.0:7700" }, "in the clear"},
		{func(c *Config) { c.Listen = ":7700" }, "in the clear"},
		{func(c *Config) { c.Listen = "[::]:7700" }, "in the clear"},
		{func(c *Config) { c.Listen = "192.0.2.1:7700" }, "in the clear"},
		{func(c *Config) { c.Listen = "host.example.org:7700" }, "in the clear"},
		{func(c *Config) { c.Listen = "7700" }, "listen"},
		{func(c *Config) { c.Listen, c.Insecure = "0.0.0.0:7700", true }, ""},
		{func(c *Config) { c.Listen, c.TLS.CertFile, c.TLS.KeyFile = ":443", "a", "b" }, ""},
		{func(c *Config) { c.Listen, c.TLS.ACME.Domains = ":443", []string{"bothy.example.org"} }, ""},
		{func(c *Config) { c.TLS.CertFile = "a" }, "one is missing"},
		{func(c *Config) { c.TLS.KeyFile = "a" }, "one is missing"},
		{func(c *Config) {
			c.TLS.CertFile, c.TLS.KeyFile, c.TLS.ACME.Domains = "a", "b", []string{"bothy.example.org"}
		}, "both"},
		{func(c *Config) { c.TLS.ACME.Domains = []string{"*.example.org"} }, "no certificate"},
		{func(c *Config) { c.TLS.ACME.Domains = []string{"bothy"} }, "no certificate"},
		{func(c *Config) { c.TLS.ACME.Domains, c.TLS.ACME.DirectoryURL = []string{"a.example.org"}, "http://x" }, "directory_url"},
		{func(c *Config) {
			c.TLS.ACME.Domains, c.TLS.ACME.HTTPPort, c.TLS.ACME.TLSPort = []string{"a.example.org"}, 0, 0
		}, "http_port"},
		{func(c *Config) { c.ShutdownSeconds = -1 }, "shutdown_seconds"},
		{func(c *Config) { c.Audit.KeepDays = -1 }, "keep_days"},
	} {
		c := Default()
		x.change(&c)
		err := c.Finish()
		if x.wrong == "" && err != nil || x.wrong != "" && (err == nil || !strings.Contains(err.Error(), x.wrong) || bothy.AsError(err).Hint == "") {
			t.Errorf("listen %q, tls %+v: %v, want %q", c.Listen, c.TLS, err, x.wrong)
		}
	}
}

func TestEngineSettings(t *testing.T) {
	load := func(text string) (Config, error) {
		p := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(p, none)
		if err != nil {
			t.Fatal(err)
		}
		return c, c.Finish()
	}
	c, err := load("engine: {default: auto, auto: strongest, microvm: {kernel: linux.deb, acceleration: kvm}}\n")
	if err != nil || c.Engine.Default != "auto" || c.Engine.Auto != AutoStrongest || c.Engine.Microvm.Acceleration != "kvm" {
		t.Errorf("got %+v, %v", c.Engine, err)
	}
	if !filepath.IsAbs(c.Engine.Microvm.Kernel) {
		t.Errorf("the kernel %s is another one in another folder", c.Engine.Microvm.Kernel)
	}
	for text, want := range map[string]string{
		"engine: {default: docker}\n":                 "engine.default",
		"engine: {cpu_level: x86-64-v9}\n":            "engine.cpu_level",
		"engine: {auto: fastest}\n":                   "engine.auto",
		"engine: {microvm: {acceleration: \"on\"}}\n": "engine.microvm.acceleration",
		"engine: {microvm: {modules: /lib/x}}\n":      "engine.microvm.modules",
	} {
		_, err := load(text)
		if e := bothy.AsError(err); err == nil || e.Code != bothy.CodeInvalid || !strings.Contains(e.Detail, want) || e.Hint == "" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSettingsOfAClusterNeedOne(t *testing.T) {
	for text, want := range map[string]string{
		"cluster: {labels: {zone: a}}\n":                                        "cluster.labels is set, and cluster.name is not",
		"cluster: {listen: 10.0.0.5:7710, address: h:7710, lease_seconds: 9}\n": "cluster.address, cluster.lease_seconds, cluster.listen is set",
		"cluster: {name: one, listen: 10.0.0.5:7710}\n":                         "store is not",
		"store: postgres://db/x\ncluster: {name: one}\n":                        "cluster.listen is not",
	} {
		p := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(p, none)
		if err != nil {
			t.Fatal(err)
		}
		if e := bothy.AsError(c.Finish()); e.Code != bothy.CodeInvalid || !strings.Contains(e.Detail, want) || e.Hint == "" {
			t.Errorf("%s: %v", text, e)
		}
	}
}

func TestClusterSettings(t *testing.T) {
	good := func() Config {
		c := Default()
		c.Store, c.Cluster.Name, c.Cluster.Listen = "postgres:///bothy", "one", "10.0.0.5:7710"
		return c
	}
	for what, x := range map[string]struct {
		change func(*Config)
		wrong  string
	}{
		"right":                        {func(*Config) {}, ""},
		"all addresses, and one said":  {func(c *Config) { c.Cluster.Listen, c.Cluster.Address = "0.0.0.0:7710", "one.example:7710" }, ""},
		"no store":                     {func(c *Config) { c.Store = "" }, "store is not"},
		"no listen":                    {func(c *Config) { c.Cluster.Listen = "" }, "cluster.listen is not"},
		"a short lease":                {func(c *Config) { c.Cluster.LeaseSeconds = 1 }, "lease_seconds"},
		"no port":                      {func(c *Config) { c.Cluster.Listen = "10.0.0.5" }, `cluster.listen is "10.0.0.5"`},
		"a port that changes":          {func(c *Config) { c.Cluster.Listen = "10.0.0.5:0" }, `cluster.listen is "10.0.0.5:0"`},
		"an address without a port":    {func(c *Config) { c.Cluster.Address = "one.example" }, `cluster.address is "one.example"`},
		"all addresses":                {func(c *Config) { c.Cluster.Listen = "0.0.0.0:7710" }, "cannot reach this one at 0.0.0.0:7710"},
		"all addresses, of both kinds": {func(c *Config) { c.Cluster.Listen = ":7710" }, "cannot reach this one at :7710"},
	} {
		c := good()
		x.change(&c)
		err := c.Finish()
		if x.wrong == "" && err != nil || x.wrong != "" && (bothy.ErrorCode(err) != bothy.CodeInvalid || !strings.Contains(err.Error(), x.wrong) || bothy.AsError(err).Hint == "") {
			t.Errorf("%s: %v, want %q", what, err, x.wrong)
		}
	}
}

func TestInflightIsChecked(t *testing.T) {
	for name, set := range map[string]func(*Inflight){
		"inflight.requests":         func(i *Inflight) { i.Requests = 0 },
		"inflight.answers_mb":       func(i *Inflight) { i.AnswersMB = -1 },
		"inflight.operator_percent": func(i *Inflight) { i.OperatorPercent = 91 },
	} {
		c := Default()
		set(&c.Inflight)
		if err := c.Finish(); bothy.ErrorCode(err) != bothy.CodeInvalid || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
