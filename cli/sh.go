package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bothy-dev/bothy"
)

func newShell(a *app) *cobra.Command {
	var req bothy.TerminalRequest
	var env []string
	var template string
	cmd := &cobra.Command{
		Use:     "sh [SANDBOX] [flags] [-- COMMAND…]",
		Aliases: []string{"attach"},
		Short:   "Open a shell in a sandbox; exits with its code",
		Long: `Open a shell in a sandbox, or run a command on a terminal of its own. The
window may be resized; Ctrl-C and the like reach what runs inside.

Without SANDBOX a new one is created, from --template, and terminated when the
shell ends.`,
		Example: `  bothy sh
  bothy sh -t node-22
  bothy sh sbx4f2a
  bothy sh -u root sbx4f2a
  bothy sh sbx4f2a -- top`,
		Args: usage(cobra.ArbitraryArgs),
	}
	flags := cmd.Flags()
	flags.StringVarP(&req.User, "user", "u", "", "`user` that runs the shell (default user)")
	flags.StringVarP(&req.Cwd, "cwd", "w", "", "`folder` to start in (default /workspace)")
	flags.StringArrayVarP(&env, "env", "e", nil, "environment variable, as `KEY=VALUE` (repeatable)")
	flags.StringVarP(&template, "template", "t", "", "`template` of the new sandbox, without SANDBOX (default python-3.12)")
	takesCommand(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		words, made := args, len(args) == 0 || cmd.ArgsLenAtDash() == 0
		if !made {
			var err error
			if words, err = commandAfter(cmd, args); err != nil {
				return err
			}
			if template != "" {
				return usagef("Leave one of them out.", "--template is for a new sandbox, and %s was named", args[0])
			}
		}
		extra, err := keyValues("--env", env)
		if err != nil {
			return err
		}
		if len(words) > 0 {
			req.Command = bothy.Command{Line: shellLine(words)}
		}
		req.Env = terminalEnv(extra)
		s, err := a.connect()
		if err != nil {
			return err
		}
		if made {
			return a.newSandboxShell(cmd.Context(), s, bothy.SandboxCreate{Template: template}, nil, req)
		}
		if args, err = s.named(cmd.Context(), cmd, args); err != nil {
			return err
		}
		return a.shell(cmd.Context(), s, args[0], req)
	}
	return cmd
}

// newSandboxShell opens a shell in a new sandbox, which ends with it.
func (a *app) newSandboxShell(ctx context.Context, s *session, create bothy.SandboxCreate, copies []volume, req bothy.TerminalRequest) error {
	if !term.IsTerminal(int(a.stdin.Fd())) {
		return noTerminal()
	}
	return a.inNew(ctx, s, create, copies, req.User, func(id string) error { return a.shell(ctx, s, id, req) })
}

func noTerminal() error {
	return usagef("Use bothy exec to run a command without a terminal.", "standard input is not a terminal")
}

// shellLine makes one line of words; a single word is already a line.
func shellLine(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// terminalEnv adds the variables that describe the terminal to programs.
func terminalEnv(extra map[string]string) map[string]string {
	env := map[string]string{"TERM": "xterm-256color"}
	for _, name := range []string{"TERM", "COLORTERM"} {
		if value := os.Getenv(name); value != "" {
			env[name] = value
		}
	}
	for k, v := range extra {
		env[k] = v
	}
	return env
}

// shell connects this terminal to one in the sandbox until that ends.
func (a *app) shell(ctx context.Context, s *session, id string, req bothy.TerminalRequest) error {
	fd := int(a.stdin.Fd())
	if !term.IsTerminal(fd) {
		return noTerminal()
	}
	var err error
	if req.Cols, req.Rows, err = term.GetSize(fd); err != nil {
		return err
	}
	t, err := s.exec.Terminal(ctx, id, req)
	if err != nil {
		return err
	}
	defer t.Close()
	before, err := term.MakeRaw(fd)
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(fd, before) }()
	defer context.AfterFunc(ctx, func() { _ = t.Close() })()
	defer followSize(fd, t)()
	// This copy is not waited for: a read from a terminal cannot be stopped, and the process
	// ends soon after the shell.
	go func() { _, _ = io.Copy(t, a.stdin) }()
	_, copyErr := io.Copy(a.stdout, t)
	return shellEnd(ctx, t, copyErr)
}

func shellEnd(ctx context.Context, t bothy.Terminal, copyErr error) error {
	if ctx.Err() != nil {
		return exitCode(exitInterrupted)
	}
	code, err := t.Wait()
	if err != nil {
		return fmt.Errorf("the connection to the sandbox was lost: %w", firstError(copyErr, err))
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
