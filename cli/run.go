package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/templates"
)

func newRun(a *app) *cobra.Command {
	var create createFlags
	var f execFlags
	var files []string
	var tty, remove bool
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND…",
		Short: "Run one command in a new sandbox; exits with its code",
		Long: `Create a sandbox, copy files in, run a command, show its output as it is
written, and terminate the sandbox, whatever happens. Standard input is passed
on unless it is a terminal; Ctrl-C ends everything.

One word is a line for the shell (bash -lc, or sh -lc where there is no bash);
several words are run as they are.

As with docker run, -it gives the command a terminal, or opens a shell where
there is no command, and the template may stand before the command if it is a
built-in one, or -- follows it.`,
		Example: `  bothy run -- python3 -c 'print(sum(range(10)))'
  bothy run -t node-22 --network restricted -- npm view left-pad version
  bothy run -v ./data.csv:/workspace/data.csv -v ./src:/workspace/src -- python3 src/main.py
  echo 'print(1)' | bothy run -- python3 -
  bothy run -it --rm debian-12 bash`,
		Args: usage(cobra.ArbitraryArgs),
	}
	create.add(cmd.Flags())
	create.addRepo(cmd.Flags())
	f.add(cmd.Flags())
	cmd.Flags().StringArrayVarP(&files, "volume", "v", nil, "file or folder to copy in first, as `HOST_FILE:PATH` (repeatable)")
	cmd.Flags().BoolVar(&tty, "tty", false, "run the command on a terminal, or open a shell; also -it")
	cmd.Flags().BoolVar(&remove, "rm", true, "terminate the sandbox in the end, which is always done")
	_ = cmd.Flags().MarkHidden("rm")
	takesCommand(cmd)
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		if !remove {
			return usagef("Use `bothy create` and `bothy exec` to keep it.", "run always terminates the sandbox in the end")
		}
		if create.template == "" && create.snapshot == "" && len(args) > 0 && cmd.ArgsLenAtDash() != 0 &&
			(slices.Contains(templates.Names(), args[0]) || len(args) > 1 && args[1] == "--") {
			create.template = args[0]
			if args = args[1:]; len(args) > 0 && args[0] == "--" {
				args = args[1:]
			}
		}
		createReq, err := create.requestFor(ctx, s, cmd.Flags())
		if err != nil {
			return err
		}
		copies, err := parseVolumes(files)
		if err != nil {
			return err
		}
		if tty {
			env, err := keyValues("--env", f.env)
			if err != nil {
				return err
			}
			req := bothy.TerminalRequest{User: f.user, Cwd: f.cwd, Env: terminalEnv(env)}
			if len(args) > 0 {
				req.Command = bothy.Command{Line: shellLine(args)}
			}
			return a.newSandboxShell(ctx, s, createReq, copies, req)
		}
		execReq, err := f.request(args)
		if err != nil {
			return err
		}
		return a.inNew(ctx, s, createReq, copies, execReq.User, func(id string) error { return a.exec(ctx, s, id, execReq, f.input) })
	})
	return cmd
}

// volume is a file or folder to copy into the sandbox.
type volume struct{ from, to string }

func parseVolumes(words []string) ([]volume, error) {
	list := make([]volume, len(words))
	for i, word := range words {
		colon := strings.LastIndexByte(word, ':')
		if colon <= 0 || colon == len(word)-1 {
			return nil, usagef("Write it as HOST_FILE:PATH.", "-v %q does not say where to copy it", word)
		}
		list[i] = volume{from: word[:colon], to: word[colon+1:]}
	}
	return list, nil
}

// inNew is the whole life of a sandbox that something is done in.
func (a *app) inNew(ctx context.Context, s *session, create bothy.SandboxCreate, copies []volume, user string, do func(id string) error) (err error) {
	sandbox, err := a.createOffering(ctx, s, create)
	if err != nil {
		return err
	}
	defer func() {
		if endErr := a.terminate(s, sandbox.ID); err == nil {
			err = endErr
		}
	}()
	up := &uploader{app: a, session: s, id: sandbox.ID, user: user}
	for _, c := range copies {
		if err := up.put(ctx, []string{c.from}, c.to); err != nil {
			return interrupted(ctx, err)
		}
	}
	return do(sandbox.ID)
}

// terminate ends a sandbox although the command may have been interrupted.
func (a *app) terminate(s *session, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// The answer to print is the command's.
	a.last.hold()
	if err := s.sandboxes.Terminate(ctx, id); err != nil {
		return fmt.Errorf("the sandbox %s was not terminated, and runs until its time is up: %w", id, err)
	}
	return nil
}
