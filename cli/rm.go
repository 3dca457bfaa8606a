package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newRemove(a *app) *cobra.Command {
	var all bool
	var labels []string
	cmd := &cobra.Command{
		Use:     "rm SANDBOX…",
		Aliases: []string{"terminate", "kill", "destroy", "delete"}, SuggestFor: []string{"stop"},
		Short: "Terminate sandboxes",
		Long:  `Terminate sandboxes. Their processes and files are lost; their snapshots stay.`,
		Example: `  bothy rm sbx4f2a
  bothy rm -l run=17
  bothy rm --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			ways := 0
			for _, given := range []bool{all, len(labels) > 0, len(args) > 0} {
				if given {
					ways++
				}
			}
			if ways != 1 {
				return usageError(cmd, errors.New("name the sandboxes, or use --label or --all"))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "terminate every sandbox of the project")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "terminate the sandboxes with this metadata, `KEY=VALUE` (repeatable)")
	cmd.RunE = a.do(func(ctx context.Context, s *session, ids []string) error {
		if len(ids) == 0 {
			metadata, err := keyValues("-l", labels)
			if err != nil {
				return err
			}
			list, err := allSandboxes(ctx, s, bothy.SandboxFilter{States: bothy.LiveStates, Metadata: metadata})
			if err != nil {
				return err
			}
			ids = sandboxIDs(list)
		}
		return a.each(ids, func(id string) error { return s.sandboxes.Terminate(ctx, id) })
	})
	return cmd
}

func sandboxIDs(list []*bothy.Sandbox) []string {
	ids := make([]string, len(list))
	for i, s := range list {
		ids[i] = s.ID
	}
	return ids
}

// each calls f for every id, prints those for which it succeeded, and continues after a failure.
// The last failure determines the exit code.
func (a *app) each(ids []string, f func(id string) error) error {
	var failed error
	for _, id := range ids {
		if err := f(id); err != nil {
			a.printError(err)
			failed = exitCode(codeFor(err))
		} else if !a.json {
			fmt.Fprintln(a.stdout, id)
		}
	}
	return failed
}

// newForEach returns a command that calls f for every argument.
func newForEach(a *app, use, short, long string, f func(ctx context.Context, s *session, arg string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: usage(cobra.MinimumNArgs(1))}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		return a.each(args, func(arg string) error { return f(ctx, s, arg) })
	})
	return cmd
}
