package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

func TestMetricsOfTheServer(t *testing.T) {
	t.Parallel()
	newBox(t, bothy.SandboxCreate{})
	status, got := shared.raw(t, http.MethodGet, "/metrics", "", http.Header{"Authorization": {"Bearer " + shared.Key}})
	for _, want := range []string{"bothy_build_info{", `bothy_sandboxes{state="running"}`, `route="POST /v1/sandboxes"`, `bothy_events_total{type="sandbox.created"}`} {
		if status != http.StatusOK || !strings.Contains(got, want) {
			t.Errorf("status %d, %q is missing", status, want)
		}
	}
	if status, _ := shared.raw(t, http.MethodGet, "/metrics", "", http.Header{}); status != http.StatusUnauthorized {
		t.Errorf("without a key: %d", status)
	}
}

type keyed struct{ key string }

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return http.DefaultTransport.RoundTrip(r)
}

// An MCP client creates a sandbox, runs a command in it, and terminates it.
func TestSandboxThroughMCP(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: shared.URL() + "/api/sandboxes/mcp", HTTPClient: &http.Client{Transport: keyed{shared.Key}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	call := func(name string, args map[string]any) map[string]any {
		t.Helper()
		r, err := s.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: args})
		if err != nil || r.IsError {
			t.Fatalf("%s: %v, %+v", name, err, r)
		}
		return r.StructuredContent.(map[string]any)
	}
	id := call("create_sandbox", map[string]any{"template": templateName})["id"]
	defer call("terminate_sandbox", map[string]any{"sandbox_id": id})
	out := call("run_shell", map[string]any{"sandbox_id": id, "command": "echo hello; echo oh >&2; exit 3"})
	if out["stdout"] != "hello\n" || out["stderr"] != "oh\n" || out["exit_code"] != 3.0 {
		t.Errorf("got %v", out)
	}
}
