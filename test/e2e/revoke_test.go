package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// Revoking a key ends its terminals, watches and commands, but neither the sandbox nor background
// commands.
func TestRevokedKeyEndsWhatItDoes(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	token, err := shared.Tokens.CreateToken(ctx, bothy.TokenCreate{Scopes: []bothy.Scope{bothy.ScopeSandboxesRead, bothy.ScopeSandboxesWrite}})
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(shared.URL(), token.Key)
	background, err := c.Exec.Exec(ctx, b.id, bothy.ExecRequest{Command: bothy.Command{Line: "exec sleep 1000"}, Background: true})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 3)
	term, err := c.Exec.Terminal(ctx, b.id, bothy.TerminalRequest{Cols: 80, Rows: 24})
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	typed := make(chan struct{})
	go func() {
		_, _ = term.Read(make([]byte, 1)) // the prompt
		close(typed)
		for {
			if _, err := term.Read(make([]byte, 1024)); err != nil {
				ended <- "terminal"
				return
			}
		}
	}()
	watching := make(chan struct{}, 100)
	go func() {
		_ = c.Files.Watch(ctx, b.id, "/workspace", "", false, func(bothy.FileEvent) error {
			watching <- struct{}{}
			return nil
		})
		ended <- "watch"
	}()
	running := make(chan struct{}, 1)
	go func() {
		_ = c.Exec.ExecStream(ctx, b.id, bothy.ExecRequest{Command: bothy.Command{Line: "echo runs; exec sleep 1000"}}, func(bothy.ExecEvent) error {
			running <- struct{}{}
			return nil
		})
		ended <- "command"
	}()
	<-typed
	<-running
	eventually(t, "the folder is watched", func() bool {
		_, err := shared.Exec.Exec(ctx, b.id, bothy.ExecRequest{Command: bothy.Command{Line: "touch /workspace/a-$RANDOM"}})
		return err == nil && len(watching) > 0
	})
	if err := shared.Tokens.DeleteToken(ctx, token.ID); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	for range 3 {
		what := <-ended
		if ctx.Err() != nil {
			t.Fatalf("the %s did not end with the key", what)
		}
		t.Logf("the %s ended after %v", what, time.Since(revoked))
	}
	list, err := shared.Exec.Processes(ctx, b.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.PID == background.PID && !p.Running {
			t.Error("the background command ended with the key")
		}
	}
}
