// Command doors measures what stands between a caller and a sandbox: what a
// command costs through the MCP door more than through REST, and what keys,
// plans and the audit cost at each request. It wants a server, in BOTHY_URL and
// BOTHY_API_KEY, and what it compares it does in turns.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access"
	"github.com/bothy-dev/bothy/audit"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/mcp"
	"github.com/bothy-dev/bothy/store/sqlite"
)

type result struct {
	Name string  `json:"name"`
	Unit string  `json:"unit"`
	N    int     `json:"n"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
}

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 300, "how many of each")
	template := flag.String("template", "python-3.12-bare", "the sandbox's template")
	flag.Parse()
	ctx := context.Background()
	all, err := commands(ctx, *n, *template)
	if err == nil {
		var more []result
		more, err = costs(ctx, *n)
		all = append(all, more...)
	}
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"results": all}); err != nil {
		log.Fatal(err)
	}
}

// took measures one thing, in microseconds.
func took(f func() error) (float64, error) {
	began := time.Now()
	err := f()
	return float64(time.Since(began).Nanoseconds()) / 1000, err
}

func summary(name string, us []float64) result {
	slices.Sort(us)
	at := func(q float64) float64 { return us[min(len(us)-1, int(q*float64(len(us))))] }
	return result{name, "us", len(us), at(0.5), at(0.95)}
}

type bearer struct{ key string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return http.DefaultTransport.RoundTrip(r)
}

// commands runs the shortest command through both doors, in turns, and makes
// sandboxes.
func commands(ctx context.Context, n int, template string) ([]result, error) {
	url, key := os.Getenv("BOTHY_URL"), os.Getenv("BOTHY_API_KEY")
	rest := client.New(url, key)
	sb, err := rest.Sandboxes.Create(ctx, bothy.SandboxCreate{Template: template})
	if err != nil {
		return nil, err
	}
	defer rest.Sandboxes.Terminate(ctx, sb.ID)
	agent := sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := agent.Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: url + mcp.Path, HTTPClient: &http.Client{Transport: bearer{key}}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	ways := []func() error{
		func() error {
			_, err := rest.Exec.Exec(ctx, sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "true"}})
			return err
		},
		func() error {
			r, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "run_shell", Arguments: map[string]any{"sandbox_id": sb.ID, "command": "true"}})
			if err == nil && r.IsError {
				err = fmt.Errorf("run_shell: %v", r.Content)
			}
			return err
		},
	}
	us := make([][]float64, len(ways))
	for i := range n + 10 {
		for w, do := range ways {
			t, err := took(do)
			if err != nil {
				return nil, err
			}
			if i >= 10 { // after some to warm up
				us[w] = append(us[w], t)
			}
		}
	}
	var creates []float64
	for range max(10, n/10) {
		var made *bothy.Sandbox
		t, err := took(func() (err error) {
			made, err = rest.Sandboxes.Create(ctx, bothy.SandboxCreate{Template: template})
			return err
		})
		if err != nil {
			return nil, err
		}
		creates = append(creates, t)
		if err := rest.Sandboxes.Terminate(ctx, made.ID); err != nil {
			return nil, err
		}
	}
	out := []result{summary("exec_rest", us[0]), summary("exec_mcp", us[1]), summary("create", creates)}
	return append(out, result{"exec_mcp_over_rest", "us", n, out[1].P50 - out[0].P50, out[1].P95 - out[0].P95}), nil
}

// costs measures what every request pays, with a store of its own: finding the
// key's owner and its plan, and recording what was done.
func costs(ctx context.Context, n int) ([]result, error) {
	dir, err := os.MkdirTemp("", "bothy-doors-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	store, err := sqlite.Open(ctx, filepath.Join(dir, "bothy.db"))
	if err != nil {
		return nil, err
	}
	defer store.Close()
	projects, err := access.NewProjects(ctx, store, time.Now)
	if err != nil {
		return nil, err
	}
	tokens := access.New(store, access.WithProjects(projects))
	token, err := tokens.CreateFirst(ctx, "bench")
	if err != nil {
		return nil, err
	}
	records, err := audit.Open(ctx, store, audit.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	defer records.Close()
	ways := map[string]func() error{
		"token": func() error { _, err := tokens.Authenticate(ctx, token.Key); return err },
		"plan":  func() error { _, err := projects.Plan(ctx, bothy.DefaultProject); return err },
		"audit": func() error {
			if err := records.Admit(); err != nil {
				return err
			}
			records.Record(bothy.AuditRecord{
				Time: time.Now(), ProjectID: bothy.DefaultProject, TokenID: token.ID, Action: "exec", SandboxID: "sbx0123456789",
				Command: "python /workspace/main.py", Remote: "127.0.0.1", RequestID: "req_0123456789", Status: 200,
			})
			return nil
		},
	}
	us := map[string][]float64{}
	for range n {
		for name, do := range ways {
			t, err := took(do)
			if err != nil {
				return nil, err
			}
			us[name] = append(us[name], t)
		}
	}
	return []result{summary("token", us["token"]), summary("plan", us["plan"]), summary("audit", us["audit"])}, nil
}
