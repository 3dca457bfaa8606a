package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/mcp"
)

func init() {
	programs["overhead"] = program{about: "the cost of keys, plans, metering and the audit: compared with a server built without them", bare: true, run: overhead}
	programs["mcp"] = program{about: "a command through MCP, compared with REST", run: throughMCP}
}

// buildBare builds a server without these.
func buildBare(source, into string) error {
	build := exec.Command("go", "build", "-tags", "bare", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", into, "./cmd/bothy")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the bare server: %w: %s", err, out)
	}
	return nil
}

// overheadAtMost is the largest allowed ratio between the servers.
const overheadAtMost = 1.05

// overhead alternates between two servers that differ only in that one has keys, plans, meters and
// the audit. Each turn starts when both have a sandbox ready, so that neither makes one while
// the other is measured.
func overhead(ctx context.Context, l *lab.Lab, b *book, n int) error {
	settings := fmt.Sprintf("pool:\n  templates: [%s]\n", l.Template)
	whole, err := l.Server(ctx, settings)
	if err != nil {
		return err
	}
	program := l.Bothy
	l.Bothy = l.Bare
	bare, err := l.Server(ctx, settings)
	l.Bothy = program
	if err != nil {
		return err
	}
	servers := map[string]*lab.Server{"bothy": whole, "without": bare}
	subject := func(name string) (bench.Subject, func(), error) {
		s := servers[name]
		sb, end, err := s.Create(ctx, bothy.SandboxCreate{Metadata: map[string]string{"team": "bench"}, TimeoutSeconds: new(3600)})
		if err != nil {
			return bench.Subject{}, nil, err
		}
		return bench.Subject{Name: name, Once: func(ctx context.Context, record bench.Record) error {
			for _, other := range servers {
				if err := other.AwaitPool(ctx); err != nil {
					return err
				}
			}
			begun := time.Now()
			_, gone, err := s.Create(ctx, bothy.SandboxCreate{Metadata: map[string]string{"team": "bench"}})
			if err != nil {
				return err
			}
			record("overhead.create_pool", bench.Since(begun))
			gone()
			for _, other := range servers {
				if err := other.AwaitPool(ctx); err != nil {
					return err
				}
			}
			for range 5 { // the first thaws the sandbox
				begun = time.Now()
				if _, err := s.Run(ctx, sb.ID, bench.True); err != nil {
					return err
				}
			}
			record("overhead.exec", bench.Since(begun))
			return nil
		}}, end, nil
	}
	first, endFirst, err := subject("bothy")
	if err != nil {
		return err
	}
	defer endFirst()
	second, endSecond, err := subject("without")
	if err != nil {
		return err
	}
	defer endSecond()
	bound := []bench.Bound{{Against: "without", AtMost: overheadAtMost}}
	return b.run(ctx, bench.Case{
		N:        orElse(n, 150),
		Measures: []bench.Measure{{Name: "overhead.create_pool", Unit: "ms", Bounds: bound}, {Name: "overhead.exec", Unit: "ms", Bounds: bound}},
		Subjects: []bench.Subject{first, second},
	})
}

type bearer struct{ key string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return http.DefaultTransport.RoundTrip(r)
}

// mcpAtMostMS is how much more a call of MCP may cost than one of REST.
const mcpAtMostMS = 2

func throughMCP(ctx context.Context, l *lab.Lab, b *book, n int) error {
	s, err := l.Server(ctx, "")
	if err != nil {
		return err
	}
	sb, end, err := s.Create(ctx, bothy.SandboxCreate{TimeoutSeconds: new(3600)})
	if err != nil {
		return err
	}
	defer end()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: s.Client.URL() + mcp.Path, HTTPClient: &http.Client{Transport: bearer{s.Key}}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	var more []float64
	var took float64
	agent := bench.Subject{Name: "mcp", Once: func(ctx context.Context, record bench.Record) error {
		begun := time.Now()
		r, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "run_shell", Arguments: map[string]any{"sandbox_id": sb.ID, "command": "/bin/true"}})
		if err == nil && r.IsError {
			err = fmt.Errorf("run_shell: %v", r.Content)
		}
		took = bench.Since(begun)
		record("mcp.run_shell", took)
		return err
	}}
	line := bench.Subject{Name: "rest", Once: func(ctx context.Context, record bench.Record) error {
		begun := time.Now()
		_, err := s.Run(ctx, sb.ID, bothy.Command{Line: "/bin/true"})
		ms := bench.Since(begun)
		record("mcp.run_shell", ms)
		more = append(more, took-ms)
		return err
	}}
	err = b.run(ctx, bench.Case{N: orElse(n, 300), Measures: []bench.Measure{{Name: "mcp.run_shell", Unit: "ms"}}, Subjects: []bench.Subject{agent, line}})
	if len(more) > 0 {
		b.Results = append(b.Results, bench.Single("mcp.run_shell_over_rest", "ms", more[1:], bench.Bound{AtMost: mcpAtMostMS}))
	}
	return err
}
