package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bothy-dev/bothy"
)

func newExec(a *app) *cobra.Command {
	var f execFlags
	var tty bool
	cmd := &cobra.Command{
		Use:   "exec SANDBOX [flags] -- COMMAND…",
		Short: "Run a command in a sandbox; exits with its code",
		Long: `Run a command in a sandbox. Its output appears as it is written, standard
input is passed on unless it is a terminal, and Ctrl-C kills the command with
everything it started.

One word is a line for the shell (bash -lc, or sh -lc where there is no bash);
several words are run as they are.`,
		Example: `  bothy exec sbx4f2a -- python3 main.py --fast
  bothy exec sbx4f2a 'ls *.csv | wc -l'
  tar c src | bothy exec sbx4f2a -- tar x
  bothy exec -d sbx4f2a -- python3 -m http.server`,
		Args: usage(cobra.MinimumNArgs(1)),
	}
	flags := cmd.Flags()
	f.add(flags)
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable, as `KEY=VALUE` (repeatable)")
	fractionVar(flags, &f.timeout, "timeout", "`time` after which the command is killed, as in 1.5s or 5m (default never)")
	flags.BoolVar(&f.keep, "keep-running", false, "keep the command running when Ctrl-C, or a lost connection, ends this one")
	flags.BoolVar(&f.merge, "merge-stderr", false, "write standard error to standard output, in order")
	flags.BoolVarP(&f.background, "background", "d", false, "start the command, print its pid and leave")
	flags.BoolVarP(&tty, "tty", "t", false, "run the command on a terminal, as bothy sh does; also -it")
	takesCommand(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		words, err := commandAfter(cmd, args)
		if err != nil {
			return err
		}
		req, err := f.request(words)
		if err != nil {
			return err
		}
		s, err := a.connect()
		if err != nil {
			return err
		}
		if args, err = s.named(cmd.Context(), cmd, args); err != nil {
			return err
		}
		if tty && !f.background && !a.json {
			return a.shell(cmd.Context(), s, args[0], bothy.TerminalRequest{
				Command: bothy.Command{Line: shellLine(words)}, User: req.User, Cwd: req.Cwd, Env: terminalEnv(req.Env),
			})
		}
		if f.background {
			return a.execBackground(cmd.Context(), s, args[0], req)
		}
		return a.exec(cmd.Context(), s, args[0], req, f.input)
	}
	return cmd
}

// execFlags are the flags of the commands that run a command.
type execFlags struct {
	user, cwd  string
	env        []string
	timeout    float64
	input      bool
	background bool
	keep       bool
	merge      bool
}

// add defines the flags that every such command has.
func (f *execFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.user, "user", "u", "", "`user` that runs the command (default user)")
	flags.StringVarP(&f.cwd, "cwd", "w", "", "`folder` to run it in (default /workspace)")
	flags.BoolVarP(&f.input, "stdin", "i", false, "with --json, wait for the end of piped standard input and pass it on")
}

func (f *execFlags) request(words []string) (bothy.ExecRequest, error) {
	if len(words) == 0 {
		return bothy.ExecRequest{}, usagef("Put it after --, as in: -- python3 main.py", "no command was given")
	}
	env, err := keyValues("--env", f.env)
	return bothy.ExecRequest{
		Command: command(words), User: f.user, Cwd: f.cwd, Env: env,
		TimeoutSeconds: f.timeout, Background: f.background, KeepRunning: f.keep, MergeStderr: f.merge,
	}, err
}

// command turns one word into a line for the shell, and several into an argument vector.
func command(words []string) bothy.Command {
	if len(words) == 1 {
		return bothy.Command{Line: words[0]}
	}
	return bothy.Command{Args: words}
}

// takesCommand makes a command line end in another one: from the first word on that is not a
// flag, flags are not ours.
func takesCommand(cmd *cobra.Command) { cmd.Flags().SetInterspersed(false) }

// commandAfter returns the command that follows the sandbox in args. There may
// be flags of ours between the two.
func commandAfter(cmd *cobra.Command, args []string) ([]string, error) {
	flags := cmd.Flags()
	if err := flags.Parse(args[1:]); err != nil {
		return nil, usageError(cmd, err)
	}
	if help, err := flags.GetBool("help"); err == nil && help {
		return nil, errors.Join(cmd.Help(), exitCode(exitDone))
	}
	return flags.Args(), nil
}

func (a *app) execBackground(ctx context.Context, s *session, id string, req bothy.ExecRequest) error {
	result, err := s.exec.Exec(ctx, id, req)
	if err != nil {
		return err
	}
	return a.show(result, func(w io.Writer) { fmt.Fprintln(w, result.PID) })
}

// exec runs a command on the streams of this process. It returns the command's
// exit code as an error unless that is 0.
func (a *app) exec(ctx context.Context, s *session, id string, req bothy.ExecRequest, input bool) error {
	if a.json {
		return a.execJSON(ctx, s, id, req, input)
	}
	final, err := a.stream(ctx, s, id, req)
	if err != nil {
		return interrupted(ctx, err)
	}
	return a.ended(final.ExitCode, final.TimedOut, final.OOMKilled, final.Hint)
}

// interrupted returns the right error if ctx ended first, whatever error the connection
// returned.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return exitCode(exitInterrupted)
	}
	return err
}

// execJSON runs a command and prints the API's answer. A pipe is read only with
// --stdin: one that is never closed would block the command forever.
func (a *app) execJSON(ctx context.Context, s *session, id string, req bothy.ExecRequest, input bool) error {
	if kind := a.inputKind(); kind == inputFile || (kind == inputPipe && input) {
		if err := a.wholeInput(&req); err != nil {
			return err
		}
	}
	result, err := s.exec.Exec(ctx, id, req)
	if err != nil {
		return interrupted(ctx, err)
	}
	return a.showEnded(result, result.ExitCode)
}

// showEnded prints the API's answer about a command that has ended, and passes its exit code on.
func (a *app) showEnded(result any, code int) error {
	if err := a.show(result, nil); err != nil {
		return err
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// ended prints why a command was killed, and passes its exit code on.
func (a *app) ended(code int, timedOut, oomKilled bool, hint string) error {
	switch {
	case oomKilled:
		fmt.Fprintln(a.stderr, "bothy: the command was killed because the sandbox was out of memory")
	case timedOut:
		fmt.Fprintln(a.stderr, "bothy: the command was killed because its time was up")
	}
	if (oomKilled || timedOut) && hint != "" {
		fmt.Fprintf(a.stderr, "  hint: %s\n", hint)
	}
	if code != 0 {
		return exitCode(code)
	}
	if oomKilled || timedOut {
		return exitCode(exitFailed)
	}
	return nil
}

var errNoEnd = errors.New("the connection to the sandbox ended before the command did")
