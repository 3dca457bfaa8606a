package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newRun(a *app) *cobra.Command {
	var create createFlags
	var f execFlags
	var files []string
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND…",
		Short: "Run one command in a new sandbox; exits with its code",
		Long: `Create a sandbox, copy files in, run a command, show its output as it is
written, and terminate the sandbox, whatever happens. Standard input is passed
on unless it is a terminal; Ctrl-C ends everything.

One word is a line for the shell (bash -lc, or sh -lc where there is no bash);
several words are run as they are.`,
		Example: `  bothy run -- python3 -c 'print(sum(range(10)))'
  bothy run -t node-22 --network restricted -- npm view left-pad version
  bothy run -v ./data.csv:/workspace/data.csv -v ./src:/workspace/src -- python3 src/main.py
  echo 'print(1)' | bothy run -- python3 -`,
		Args: usage(cobra.ArbitraryArgs),
	}
	create.add(cmd.Flags())
	f.add(cmd.Flags())
	cmd.Flags().StringArrayVarP(&files, "volume", "v", nil, "file or folder to copy in first, as `HOST_FILE:PATH` (repeatable)")
	takesCommand(cmd)
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		execReq, err := f.request(args)
		if err != nil {
			return err
		}
		createReq, err := create.request(cmd.Flags())
		if err != nil {
			return err
		}
		copies, err := parseVolumes(files)
		if err != nil {
			return err
		}
		return a.run(ctx, s, createReq, copies, execReq, f.input)
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

// run is the whole life of a sandbox that runs one command.
func (a *app) run(ctx context.Context, s *session, create bothy.SandboxCreate, copies []volume, exec bothy.ExecRequest, input bool) (err error) {
	// The creation is not interrupted: its answer has the id that must be terminated.
	sandbox, err := a.create(context.WithoutCancel(ctx), s, create)
	if err != nil {
		return err
	}
	defer func() {
		if endErr := a.terminate(s, sandbox.ID); err == nil {
			err = endErr
		}
	}()
	up := &uploader{app: a, session: s, id: sandbox.ID, user: exec.User}
	for _, c := range copies {
		if err := up.put(ctx, []string{c.from}, c.to); err != nil {
			return interrupted(ctx, err)
		}
	}
	return a.exec(ctx, s, sandbox.ID, exec, input)
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
