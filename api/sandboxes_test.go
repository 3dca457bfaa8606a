package api

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
)

func TestCreateWithEverything(t *testing.T) {
	f := start(t)
	res := f.ok(201, f.do("POST", "/v1/sandboxes", `{"template":"node-22","name":"n","cpu":0.5,"memory_mb":128,"disk_mb":256,
		"network":{"mode":"restricted","presets":["pypi"],"allow_domains":["*.example.org"],"allow_cidrs":["192.0.2.0/24"],"allow_ports":[443]},
		"timeout_seconds":0,"on_timeout":"pause","idle_seconds":60,"on_host_loss":"resume","checkpoint_seconds":30,"auto_resume":true,"env":{"A":"b"},
		"secrets":[{"name":"k","value":"v","hosts":["api.example.com"],"header":"X-Key"}],"metadata":{"m":"n"},"engine":"fake"}`))
	zero := 0
	want := bothy.SandboxCreate{
		Template: "node-22", Name: "n", CPU: 0.5, MemoryMB: 128, DiskMB: 256,
		Network: &bothy.Network{
			Mode: bothy.NetworkRestricted, Presets: []string{"pypi"}, AllowDomains: []string{"*.example.org"},
			AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, AllowPorts: []uint16{443},
		},
		TimeoutSeconds: &zero, OnTimeout: bothy.TimeoutPause, IdleSeconds: 60, AutoResume: true, OnHostLoss: bothy.HostLossResume, CheckpointSeconds: 30, Env: map[string]string{"A": "b"},
		Secrets:  []bothy.Secret{{Name: "k", Value: "v", Hosts: []string{"api.example.com"}, Header: "X-Key"}},
		Metadata: map[string]string{"m": "n"}, Engine: "fake",
	}
	if d := cmp.Diff(want, f.world.Created, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Fatalf("the service was asked for something else (-want +got):\n%s", d)
	}
	b := decode[bothy.Sandbox](f, res)
	if got := res.Header.Get("Location"); got != "/v1/sandboxes/"+b.ID {
		t.Errorf("Location %q", got)
	}
	if strings.Contains(f.logged.String(), `"v"`) || strings.Contains(f.logged.String(), apitest.Writer) {
		t.Error("the log has a secret")
	}
}

func TestCreateDefaults(t *testing.T) {
	f := start(t)
	for _, body := range []any{nil, "{}"} {
		f.ok(201, f.do("POST", "/v1/sandboxes", body))
		if d := cmp.Diff(bothy.SandboxCreate{}, f.world.Created, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("the defaults are the service's to know (-want +got):\n%s", d)
		}
	}
	f.ok(201, f.do("POST", "/v1/sandboxes", `{"network":"open","size":"large"}`))
	if n := f.world.Created.Network; n == nil || n.Mode != bothy.NetworkOpen || f.world.Created.Size != "large" {
		t.Fatalf("asked for %+v", f.world.Created)
	}
}

func TestLifeOfASandbox(t *testing.T) {
	f := start(t)
	path := f.create()
	b := decode[bothy.Sandbox](f, f.ok(200, f.do("GET", path, nil)))
	if b.State != bothy.StateRunning || b.Template != bothy.DefaultTemplate {
		t.Fatalf("%+v", b)
	}
	b = decode[bothy.Sandbox](f, f.ok(200, f.do("PATCH", path, `{"name":"x","metadata":{"a":"b"},"network":"open","timeout_seconds":5}`)))
	if b.Name != "x" || b.Metadata["a"] != "b" || b.Network.Mode != bothy.NetworkOpen || b.TimeoutSeconds != 5 {
		t.Fatalf("%+v", b)
	}
	if u := f.world.Updated; u.OnTimeout != nil || u.IdleSeconds != nil {
		t.Fatalf("an unrequested change: %+v", u)
	}
	for range 2 {
		if res := f.ok(204, f.do("DELETE", path, nil)); res.body != "" {
			t.Fatalf("204 with a body: %q", res.body)
		}
	}
	b = decode[bothy.Sandbox](f, f.ok(200, f.do("GET", path, nil)))
	if b.State != bothy.StateStopped || b.Ended == nil || b.Ended.Reason != bothy.EndTerminated {
		t.Fatalf("%+v", b)
	}
}

func TestListFilters(t *testing.T) {
	f := start(t)
	if res := f.ok(200, f.do("GET", "/v1/sandboxes", nil)); strings.TrimSpace(res.body) != `{"items":[]}` {
		t.Fatalf("an empty list is %s", res.body)
	}
	var ids []string
	for _, body := range []string{`{"name":"a","metadata":{"team":"red","x.y":"1"}}`, `{"name":"b","metadata":{"team":"red"}}`, `{"name":"c"}`} {
		ids = append(ids, decode[bothy.Sandbox](f, f.ok(201, f.do("POST", "/v1/sandboxes", body))).ID)
	}
	f.ok(204, f.do("DELETE", "/v1/sandboxes/"+ids[2], nil))
	for query, want := range map[string]string{
		"":                                  "cba",
		"?metadata.team=red":                "ba",
		"?metadata.team=red&metadata.x.y=1": "a",
		"?name=b":                           "b",
		"?state=stopped":                    "c",
		"?state=running,stopped":            "cba",
		"?state=running&state=stopped":      "cba",
		"?state=paused":                     "",
		"?limit=2":                          "cb",
		"?limit=2&cursor=" + ids[1]:         "a",
		"?metadata.team=red&state=running&name=a": "a",
	} {
		p := decode[bothy.Page[*bothy.Sandbox]](f, f.ok(200, f.do("GET", "/v1/sandboxes"+query, nil)))
		got := ""
		for _, b := range p.Items {
			got += b.Name
		}
		if got != want {
			t.Errorf("%s lists %q, want %q", query, got, want)
		}
		if (p.NextCursor != "") != (query == "?limit=2") {
			t.Errorf("%s has the next cursor %q", query, p.NextCursor)
		}
	}
}
