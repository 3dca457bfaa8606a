package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

// If a host has no room, the next one is asked, whichever API creates the sandbox.
func TestAHostThatIsFullLeavesSandboxesToOthers(t *testing.T) {
	t.Parallel()
	hosts := newHostsWith(t, func(i int, settings, store string) (string, string) {
		if i == 1 { // it looks as good as the others, but refuses everything
			settings += "sandboxes: {min_free_memory_mb: 100000000}\n"
		}
		return settings, store
	}, "one", "two", "three")
	one := hosts[0]
	if _, err := one.Hosts.UpdateHost(t.Context(), "one", bothy.HostUpdate{State: bothy.HostCordoned}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	ids := map[string]bool{}
	ask := func(path, body string) string {
		key := http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + one.Key}}
		if path == "/sandboxes" {
			key = http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {one.Key}}
		}
		status, text := one.raw(t, http.MethodPost, path, body, key)
		if status/100 != 2 {
			t.Fatalf("POST %s: %d %s", path, status, text)
		}
		var made struct {
			ID        string `json:"id"`
			SandboxID string `json:"sandboxID"`
		}
		if err := json.Unmarshal([]byte(text), &made); err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(made.ID+made.SandboxID, "-")
		return id
	}
	agent := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := agent.Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: one.URL() + "/api/sandboxes/mcp", HTTPClient: &http.Client{Transport: keyed{one.Key}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for range 3 {
		for _, id := range []string{
			ask("/v1/sandboxes", `{"template":"python-3.12-bare","memory_mb":64}`),
			ask("/sandboxes", `{"templateID":"python-3.12-bare"}`),
			ask("/v1/containers", `{"name":"box"}`),
			func() string {
				p := &sdk.CallToolParams{Name: "create_sandbox", Arguments: map[string]any{"template": "python-3.12-bare", "memory_mb": 64}}
				p.SetProgressToken("token")
				res, err := session.CallTool(ctx, p)
				if err != nil || res.IsError {
					t.Fatalf("an agent gets no sandbox: %+v %v", res, err)
				}
				made, _ := res.StructuredContent.(map[string]any)
				id, _ := made["id"].(string)
				return id
			}(),
		} {
			if ids[id] = true; id == "" {
				t.Error("a sandbox has no id")
			}
			// So that the host that refuses always looks better than the one that accepts.
			if err := one.Sandboxes.Terminate(ctx, id); err != nil {
				t.Error(err)
			}
		}
	}
	if len(ids) != 12 {
		t.Errorf("%d sandboxes were created", len(ids))
	}
	_, metrics := one.raw(t, http.MethodGet, "/metrics", "", http.Header{"Authorization": {"Bearer " + one.Key}})
	if !strings.Contains(metrics, "bothy_placement_refusals_total") || strings.Contains(metrics, "bothy_placement_refusals_total 0\n") {
		t.Errorf("no host refused: %s", metrics)
	}
}

// Requests that arrive together do not wait for the last room of the host that gets them while another has
// room.
func TestHostsShareWhatArrivesTogether(t *testing.T) {
	t.Parallel()
	hosts := newHostsWith(t, func(i int, settings, store string) (string, string) {
		// The first looks as good as any until it is full, and then has requests wait for longer than the
		// test.
		return settings + []string{"sandboxes: {max: 3, wait_seconds: 600}\n", "sandboxes: {max: 20, wait_seconds: 600}\n"}[i], store
	}, "one", "two")
	one := hosts[0]
	const n = 10
	ids := make(chan string, n)
	var made sync.WaitGroup
	for i := range n {
		path, body, key := "/v1/sandboxes", `{"template":"python-3.12-bare","memory_mb":64}`, http.Header{"Authorization": {"Bearer " + one.Key}}
		if i%2 == 1 {
			path, body, key = "/sandboxes", `{"templateID":"python-3.12-bare","timeout":600}`, http.Header{"X-Api-Key": {one.Key}}
		}
		key.Set("Content-Type", "application/json")
		key.Set("Idempotency-Key", fmt.Sprint("together-", i))
		made.Go(func() {
			status, text := one.raw(t, http.MethodPost, path, body, key)
			var sb struct {
				ID        string `json:"id"`
				SandboxID string `json:"sandboxID"`
			}
			if err := json.Unmarshal([]byte(text), &sb); err != nil || status/100 != 2 {
				t.Errorf("POST %s: %d %s", path, status, text)
				return
			}
			id, _, _ := strings.Cut(sb.ID+sb.SandboxID, "-")
			ids <- id
		})
	}
	made.Wait()
	close(ids)
	on := sandboxesOn(t, one)
	if on["one"] > 3 || on["one"]+on["two"] != n {
		t.Errorf("the hosts have %v", on)
	}
	for id := range ids {
		b := &box{t, one, t.Context(), id}
		b.usable()
		if err := one.Sandboxes.Terminate(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// The sandboxes of a project are spread over equally busy hosts.
func TestHostsShareTheSandboxesOfAProject(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two", "three")
	for range 9 {
		hosts[0].newBox(t, smallest)
	}
	on := sandboxesOn(t, hosts[1])
	for _, name := range []string{"one", "two", "three"} {
		if on[name] == 0 {
			t.Errorf("the hosts have %v", on)
		}
	}
	eventually(t, "all hosts say which templates they have", func() bool {
		return !slices.ContainsFunc(must(hosts[0].Hosts.Hosts(t.Context())), func(h bothy.ClusterHost) bool { return len(h.Templates) == 0 })
	})
}
