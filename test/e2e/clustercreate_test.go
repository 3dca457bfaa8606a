package e2e

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/test/testserver"
)

// outcome is what became of a request for a sandbox: what the sandbox is and what is in it, or why there
// is none.
type outcome struct {
	Sandbox bothy.Sandbox
	// Lives is how many seconds it has from its start, and Inside what its processes see.
	Lives  int
	Inside string
	Error  string
}

// came returns what became of a request, and ends the sandbox, which has to be on the host two.
func (s *server) came(t *testing.T, what, id string, err error) (o outcome) {
	t.Helper()
	if err != nil {
		return outcome{Error: err.Error()}
	}
	if on := sandboxesOn(t, s); on["two"] != 1 || on["one"] != 0 {
		t.Errorf("%s: the hosts have %v", what, on)
	}
	b := &box{t, s, t.Context(), id}
	o.Sandbox = *b.get()
	sb := &o.Sandbox
	if sb.BudgetRoot != "" && sb.BudgetRoot != id {
		t.Errorf("%s: its budget is that of %s", what, sb.BudgetRoot)
	}
	if sb.ExpiresAt != nil {
		o.Lives = int(sb.ExpiresAt.Sub(*sb.StartedAt).Seconds())
	}
	if sb.Resumed != nil {
		sb.Resumed.At = sb.CreatedAt
		sb.Resumed = &bothy.Resumed{SnapshotID: sb.Resumed.SnapshotID, Kind: sb.Resumed.Kind, Detail: sb.Resumed.Detail}
	}
	sb.ID, sb.BudgetRoot, sb.CreatedAt, sb.StartedAt, sb.ExpiresAt, sb.CheckpointAt = "", "", bothy.Sandbox{}.CreatedAt, nil, nil, nil
	// The placeholder of a secret is another in each sandbox.
	o.Inside = b.sh("", `echo "$COLOUR" ${#TOKEN}; cat /workspace/note 2>/dev/null || true`)
	if err := s.Sandboxes.Terminate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return o
}

// creates are requests that have all fields together.
func creates(snapshot string) map[string]bothy.SandboxCreate {
	there, seconds := map[string]string{"zone": "b", "disk": "fast"}, 777
	return map[string]bothy.SandboxCreate{
		"numbers": {
			Template: bare, Name: "numbers", CPU: 0.5, MemoryMB: 96, DiskMB: 128, TimeoutSeconds: &seconds, OnTimeout: bothy.TimeoutPause, IdleSeconds: 333,
			Network:    &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"good.example.org"}, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}},
			AutoResume: true, OnHostLoss: bothy.HostLossFail, CheckpointSeconds: 3600, Env: map[string]string{"COLOUR": "green"}, Metadata: map[string]string{"run": "17"},
			Secrets: []bothy.Secret{{Name: "TOKEN", Value: "hidden", Hosts: []string{"good.example.org"}}}, Engine: "gvisor", Budget: 12.5, HostLabels: there,
		},
		"a size":       {Template: bare, Size: "small", HostLabels: there},
		"a snapshot":   {SnapshotID: snapshot, Metadata: map[string]string{"from": "snapshot"}, HostLabels: there},
		"acceleration": {Template: bare, Engine: "auto", RequireAcceleration: true, HostLabels: there},
		"a repository": {Template: bare, Repo: "https://good.example.org/team/app#main", RepoToken: "hidden", HostLabels: there}, // the network is off
	}
}

// flags are the arguments of `bothy create` for a request.
func flags(req bothy.SandboxCreate) (args []string) {
	add := func(name string, value any) {
		if !reflect.ValueOf(value).IsZero() {
			args = append(args, fmt.Sprintf("--%s=%v", name, value))
		}
	}
	pairs := func(name string, m map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			add(name, key+"="+m[key])
		}
	}
	for name, value := range map[string]any{
		"template": req.Template, "snapshot": req.SnapshotID, "name": req.Name, "size": req.Size, "engine": req.Engine, "cpu": req.CPU, "memory": req.MemoryMB,
		"disk": req.DiskMB, "on-timeout": req.OnTimeout, "idle": req.IdleSeconds, "auto-resume": req.AutoResume, "on-host-loss": req.OnHostLoss,
		"checkpoint": req.CheckpointSeconds, "budget": req.Budget, "require-acceleration": req.RequireAcceleration, "repo": req.Repo,
	} {
		add(name, value)
	}
	if req.TimeoutSeconds != nil {
		add("timeout", *req.TimeoutSeconds)
	}
	if n := req.Network; n != nil {
		add("network", n.Mode)
		for _, domain := range n.AllowDomains {
			add("allow-domain", domain)
		}
		for _, cidr := range n.AllowCIDRs {
			add("allow-cidr", cidr)
		}
	}
	for _, secret := range req.Secrets {
		add("secret", secret.Name+"@"+strings.Join(secret.Hosts, ","))
	}
	if req.RepoToken != "" {
		add("repo-token", "TOKEN")
	}
	pairs("env", req.Env)
	pairs("metadata", req.Metadata)
	pairs("host-label", req.HostLabels)
	return args
}

// Whichever host receives a request for a sandbox, by whichever API, and whichever host gets the sandbox:
// each field means the same.
func TestHostsPassOnWhatASandboxIsMadeWith(t *testing.T) {
	t.Parallel()
	hosts := newHostsWith(t, func(i int, settings, store string) (string, string) {
		zone := []string{"a", "b"}[i]
		return strings.Replace(settings, "cluster:\n", "cluster:\n  labels: {zone: "+zone+", disk: fast}\n", 1) +
			"engine: {microvm: {acceleration: emulated}}\nopenai: {template: " + bare + "}\n", store
	}, "one", "two")
	one, two := hosts[0], hosts[1]
	ctx := t.Context()
	b := one.boxOn(t, "two", bothy.SandboxCreate{Template: bare, MemoryMB: 64})
	b.write("/workspace/note", "of the snapshot")
	kept, err := one.Snapshots.CreateSnapshot(ctx, b.id, bothy.SnapshotCreate{Name: "kept-note"})
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Sandboxes.Terminate(ctx, b.id); err != nil {
		t.Fatal(err)
	}
	program := must(testserver.Program())
	apis := map[string]func(s *server, req bothy.SandboxCreate) (string, error){
		"REST": func(s *server, req bothy.SandboxCreate) (string, error) {
			sb, err := s.Sandboxes.Create(ctx, req)
			if err != nil {
				return "", err
			}
			return sb.ID, nil
		},
		"MCP": func(s *server, req bothy.SandboxCreate) (string, error) {
			req.Secrets, req.RepoToken = nil, "" // it sends none
			var args map[string]any
			text, err := json.Marshal(req)
			if err == nil {
				err = json.Unmarshal(text, &args)
			}
			if err != nil {
				return "", err
			}
			r := s.agent(t, "create_sandbox", args)
			made, _ := r.StructuredContent.(map[string]any)
			if id, _ := made["id"].(string); id != "" && !r.IsError {
				return id, nil
			}
			text, err = json.Marshal(r.Content)
			return "", errors.Join(errors.New(string(text)), err)
		},
		"the command line": func(s *server, req bothy.SandboxCreate) (string, error) {
			cmd := exec.CommandContext(ctx, program, append([]string{"create"}, flags(req)...)...)
			cmd.Env = append(cmd.Environ(), "BOTHY_URL="+s.URL(), "BOTHY_API_KEY="+s.Key, "TOKEN=hidden")
			var problem strings.Builder
			cmd.Stderr = &problem
			out, err := cmd.Output()
			if err == nil {
				return strings.TrimSpace(string(out)), nil
			}
			return "", fmt.Errorf("%v: %s", err, problem.String())
		},
	}
	sent := map[string]bool{}
	for name, req := range creates(kept.ID) {
		for f, v := range reflect.ValueOf(req).Fields() {
			sent[f.Name] = sent[f.Name] || !v.IsZero()
		}
		for _, by := range slices.Sorted(maps.Keys(apis)) {
			what := name + " by " + by
			id, err := apis[by](two, req)
			want := two.came(t, what, id, err)
			if id, err = apis[by](one, req); err != nil && want.Error == "" {
				t.Errorf("%s: %v", what, err)
				continue
			}
			if got := one.came(t, what, id, err); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, through the other host:\n%+v\nthrough its own:\n%+v", what, got, want)
			}
			switch {
			case req.RequireAcceleration && !strings.Contains(want.Error, "accelerat"), req.Repo != "" && !strings.Contains(want.Error, "does not let it reach"), !req.RequireAcceleration && req.Repo == "" && want.Error != "":
				t.Errorf("%s: %s", what, want.Error)
			case name == "numbers" && (want.Lives != 777 || !strings.HasPrefix(want.Inside, "green ") || want.Sandbox.Budget != 12.5 || want.Sandbox.CheckpointSeconds != 3600):
				t.Errorf("%s: %+v", what, want)
			case req.SnapshotID != "" && !strings.HasSuffix(want.Inside, "of the snapshot"):
				t.Errorf("%s: %+v", what, want)
			}
		}
	}
	for f := range reflect.TypeFor[bothy.SandboxCreate]().Fields() {
		if f.Tag.Get("json") != "-" && !sent[f.Name] {
			t.Errorf("no request has the field %s", f.Name)
		}
	}

	// A container is given the files of another, wherever the two are.
	key := http.Header{"Authorization": {"Bearer " + one.Key}, "Content-Type": {"application/json"}}
	container := func(body string) (id string) {
		t.Helper()
		status, text := one.raw(t, http.MethodPost, "/v1/containers", body, key)
		var made struct {
			ID string `json:"id"`
		}
		if status != http.StatusOK || json.Unmarshal([]byte(text), &made) != nil {
			t.Fatalf("POST /v1/containers %s: %d %s", body, status, text)
		}
		return made.ID
	}
	source := &box{t, one, ctx, container(`{"name": "source", "host_labels": {"zone": "a"}}`)}
	source.write("/mnt/data/note", "of the other container")
	file := "cfile_" + base64.RawURLEncoding.EncodeToString([]byte(source.id+"/note"))
	given := &box{t, one, ctx, container(`{"name": "given", "host_labels": {"zone": "b"}, "file_ids": ["` + file + `"]}`)}
	if got := given.read("/mnt/data/note"); got != "of the other container" {
		t.Errorf("a container was given %q", got)
	}
	none := "cfile_" + base64.RawURLEncoding.EncodeToString([]byte(source.id+"/none"))
	if status, text := one.raw(t, http.MethodPost, "/v1/containers/"+given.id+"/files", `{"file_id": "`+none+`"}`, key); status != http.StatusNotFound || !strings.Contains(text, string(bothy.CodeFileNotFound)) {
		t.Errorf("a file that does not exist: %d %s", status, text)
	}
	for _, id := range []string{source.id, given.id} {
		if err := one.Sandboxes.Terminate(ctx, id); err != nil {
			t.Fatal(err)
		}
	}

	// What E2B's clients call a template leads to the host that has the snapshot.
	for _, name := range []string{kept.ID, kept.ID + ":default", "kept-note"} {
		status, text := one.raw(t, http.MethodPost, "/sandboxes", `{"templateID": "`+name+`"}`, http.Header{"X-Api-Key": {one.Key}, "Content-Type": {"application/json"}})
		var made struct {
			SandboxID string `json:"sandboxID"`
		}
		if status != http.StatusCreated || json.Unmarshal([]byte(text), &made) != nil {
			t.Errorf("a sandbox from %s: %d %s", name, status, text)
			continue
		}
		if o := one.came(t, name, made.SandboxID, nil); !strings.HasSuffix(o.Inside, "of the snapshot") {
			t.Errorf("a sandbox from %s has %q", name, o.Inside)
		}
	}

	// E2B's and OpenAI's clients have fields of their own, and other forms of keys.
	const labels = `"host_labels": {"zone": "b", "disk": "fast"}`
	e2bKey := "e2b_" + strings.TrimPrefix(one.Key, "bothy_")
	e2b := func(template string) string {
		return `{"templateID": "` + template + `", "timeout": 777, "autoPause": true, "autoResume": {"enabled": true}, "envVars": {"COLOUR": "green"},
			"network": {"allowOut": ["good.example.org"], "denyOut": ["0.0.0.0/0"]},
			"metadata": {"run": "17", "bothy.host_labels": "zone=b,disk=fast", "bothy.on_host_loss": "fail", "bothy.checkpoint_seconds": "3600"}}`
	}
	for what, c := range map[string]struct {
		path, body string
		key        http.Header
	}{
		"E2B":                         {"/sandboxes", e2b(bare), http.Header{"X-Api-Key": {e2bKey}}},
		"E2B, with a bearer's key":    {"/v2/sandboxes", e2b(bare), http.Header{"Authorization": {"Bearer " + e2bKey}}},
		"E2B, with two keys":          {"/v2/sandboxes", e2b(bare), http.Header{"X-Api-Key": {e2bKey}, "Authorization": {"Bearer sk_e2b_of_its_own"}}},
		"E2B, with a snapshot's id":   {"/v2/sandboxes", e2b(kept.ID + ":default"), http.Header{"X-Api-Key": {one.Key}}},
		"E2B, with a snapshot's name": {"/sandboxes", e2b("kept-note"), http.Header{"X-Api-Key": {e2bKey}}},
		"OpenAI": {"/v1/containers", `{"name": "box", "expires_after": {"anchor": "last_active_at", "minutes": 7}, "memory_limit": "4g", "on_host_loss": "fail", "checkpoint_seconds": 3600,
			"network_policy": {"type": "allowlist", "allowed_domains": ["good.example.org"], "domain_secrets": [{"domain": "good.example.org", "name": "TOKEN", "value": "hidden"}]}, ` + labels + `}`,
			http.Header{"Authorization": {"Bearer " + one.Key}}},
	} {
		c.key.Set("Content-Type", "application/json")
		var came []outcome
		for _, s := range []*server{two, one} {
			status, text := s.raw(t, http.MethodPost, c.path, c.body, c.key)
			var made struct {
				ID        string `json:"id"`
				SandboxID string `json:"sandboxID"`
			}
			if status/100 != 2 || json.Unmarshal([]byte(text), &made) != nil {
				t.Errorf("%s, at %s: %d %s", what, s.Address, status, text)
				continue
			}
			id, _, _ := strings.Cut(made.ID+made.SandboxID, "-")
			if strings.HasPrefix(what, "E2B") {
				for path, method := range map[string]string{"/sandboxes/" + id: http.MethodGet, "/sandboxes/" + id + "/timeout": http.MethodPost} {
					if status, text := s.raw(t, method, path, `{"timeout": 777}`, c.key); status/100 != 2 {
						t.Errorf("%s, %s at %s: %d %s", what, path, s.Address, status, text)
					}
				}
			}
			o := s.came(t, what, id, nil)
			o.Lives = o.Sandbox.TimeoutSeconds
			came = append(came, o)
		}
		if len(came) != 2 {
			continue
		}
		if !reflect.DeepEqual(came[0], came[1]) {
			t.Errorf("%s, through the other host:\n%+v\nthrough its own:\n%+v", what, came[1], came[0])
		}
		if sb := came[0].Sandbox; sb.OnHostLoss != bothy.HostLossFail || sb.CheckpointSeconds != 3600 || sb.Network.Mode != bothy.NetworkRestricted || sb.HostLabels["disk"] != "fast" {
			t.Errorf("%s: %+v", what, sb)
		}
		if strings.Contains(what, "snapshot") != strings.HasSuffix(came[0].Inside, "of the snapshot") {
			t.Errorf("%s: inside it is %q", what, came[0].Inside)
		}
	}
}
