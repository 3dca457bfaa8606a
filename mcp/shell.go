package mcp

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

// runKept runs a command in the persistent shell of a sandbox.
func (t tools) runKept(ctx context.Context, req *mcp.CallToolRequest, in shellIn, keep int) ([]mcp.Content, shellOut, error) {
	if in.Cwd != "" || in.User != "" || len(in.Env) > 0 || in.Stdin != "" {
		return nil, shellOut{}, bothy.Errorf(bothy.CodeInvalid, "a kept shell has a directory, a user, variables and an input of its own").
			WithHint("Leave out cwd, user, env and stdin, and use cd, sudo, export and a pipe in the command; or leave out kept and restart.")
	}
	if in.Restart {
		err := t.Code.RestartContext(ctx, in.SandboxID, bothy.ShellContext(bothy.DefaultShell))
		if err != nil && bothy.ErrorCode(err) != bothy.CodeContextNotFound {
			return nil, shellOut{}, err
		}
		if in.Command == "" {
			return text("The shell is as new."), shellOut{}, nil
		}
	}
	code, err := bothy.ShellRequest{Command: in.Command, TimeoutSeconds: in.TimeoutSeconds}.InShell(bothy.DefaultShell)
	if err != nil {
		return nil, shellOut{}, err
	}
	progressOf(req).say(ctx, "running")
	ran, err := t.Code.RunCode(ctx, in.SandboxID, code)
	if err != nil {
		return nil, shellOut{}, err
	}
	r := ran.Shell()
	out := shellOut{
		ExitCode: r.ExitCode, Stdout: r.Stdout, Stderr: r.Stderr, DurationMS: r.DurationMS,
		TimedOut: r.TimedOut, OOMKilled: r.OOMKilled, Truncated: r.Truncated, Hint: r.Hint,
	}
	content := out.content(in, keep)
	return content, out, nil
}
