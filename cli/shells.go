package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newShells(a *app) *cobra.Command {
	cmd := group("shell", "Run commands in shells whose directory and variables persist", newShellCreate(a), newShellExec(a), newShellList(a),
		newShellDo(a, "interrupt", "Interrupt the command that runs in a shell", func(s *session) contextAction { return s.shells.Interrupt }),
		newShellDo(a, "restart", "Reset a shell: its directory and variables are forgotten", func(s *session) contextAction { return s.shells.Restart }),
		newShellDo(a, "rm", "End a shell and what it started", func(s *session) contextAction { return s.shells.Delete }))
	cmd.Long = `Run commands in a kept shell: one bash whose directory and variables persist
from one command to the next. Each sandbox has one named default, which need not
be created, and can have more. bothy sh is for people: it opens a terminal.`
	return cmd
}

func newShellCreate(a *app) *cobra.Command {
	var req bothy.ShellCreate
	cmd := &cobra.Command{
		Use:   "create SANDBOX",
		Short: "Create another shell, and print its id",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVarP(&req.Cwd, "cwd", "w", "", "`folder` in which it starts (default /workspace)")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		made, err := s.shells.Create(ctx, args[0], req)
		if err != nil {
			return err
		}
		return a.show(made, func(w io.Writer) { fmt.Fprintln(w, made.ID) })
	})
	return cmd
}

func newShellExec(a *app) *cobra.Command {
	var req bothy.ShellRequest
	var shell string
	cmd := &cobra.Command{
		Use:   "exec SANDBOX [flags] -- COMMAND…",
		Short: "Run a command in a shell; exits with its code",
		Long: `Run a command in a kept shell. What it sets stays for the next one. Its output
appears as it is written, it has no standard input, and Ctrl-C ends the command
but not the shell.

One word is a line for bash; several words are run as they are.`,
		Example: `  bothy shell exec sbx4f2a 'cd src && export MODE=test'
  bothy shell exec sbx4f2a 'pwd; echo $MODE'
  bothy shell exec --timeout 60 sbx4f2a -- make test`,
		Args: usage(cobra.MinimumNArgs(1)),
	}
	flags := cmd.Flags()
	flags.StringVarP(&shell, "shell", "s", bothy.DefaultShell, "id of the `shell`")
	fractionVar(flags, &req.TimeoutSeconds, "timeout", "`time` after which the command is ended, and not the shell, as in 1.5s or 5m (default never)")
	takesCommand(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		words, err := commandAfter(cmd, args)
		if err != nil {
			return err
		}
		if len(words) == 0 {
			return usagef("Put it after the sandbox, as in: 'cd src && ls'", "no command was given")
		}
		req.Command = shellLine(words)
		s, err := a.connect()
		if err != nil {
			return err
		}
		if args, err = s.named(cmd.Context(), cmd, args); err != nil {
			return err
		}
		if a.json {
			return a.shellExecJSON(cmd.Context(), s, args[0], shell, req)
		}
		return a.shellExec(cmd.Context(), s, args[0], shell, req)
	}
	return cmd
}

func (a *app) shellExecJSON(ctx context.Context, s *session, id, shell string, req bothy.ShellRequest) error {
	result, err := s.shells.Exec(ctx, id, shell, req)
	if err != nil {
		return interrupted(ctx, err)
	}
	return a.showEnded(result, result.ExitCode)
}

// shellExec runs a command with its output on our streams. When ctx ends, the command is ended.
func (a *app) shellExec(ctx context.Context, s *session, id, shell string, req bothy.ShellRequest) error {
	var final bothy.ShellEvent
	err := s.shells.ExecStream(ctx, id, shell, req, func(e bothy.ShellEvent) error {
		if e.IsFinal {
			final = e
		}
		w := a.stdout
		if e.Stream == "stderr" {
			w = a.stderr
		}
		_, err := io.WriteString(w, e.Data)
		return err
	})
	if err != nil {
		return interrupted(ctx, err)
	}
	if final.Truncated {
		fmt.Fprintln(a.stderr, "bothy: some of the output was dropped, because it was too much")
	}
	if final.Ended {
		fmt.Fprintln(a.stderr, "bothy: the shell has ended: the next command gets a new one")
	}
	code := 0
	if final.ExitCode != nil {
		code = *final.ExitCode
	}
	return a.ended(code, final.TimedOut, final.OOMKilled, final.Hint)
}

func newShellList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls SANDBOX",
		Short: "List the shells of a sandbox",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		list, err := s.shells.List(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(list, func(w io.Writer) {
			rows := make([][]string, len(list))
			for i, shell := range list {
				rows[i] = []string{shell.ID, orDash(shell.Cwd), age(shell.CreatedAt)}
			}
			table(w, []string{"SHELL", "FOLDER", "AGE"}, rows)
		})
	})
	return cmd
}

func newShellDo(a *app, verb, short string, pick func(*session) contextAction) *cobra.Command {
	cmd := &cobra.Command{Use: verb + " SANDBOX [SHELL]", Short: short, Args: usage(cobra.RangeArgs(1, 2))}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		shell := bothy.DefaultShell
		if len(args) == 2 {
			shell = args[1]
		}
		return pick(s)(ctx, args[0], shell)
	})
	return cmd
}
