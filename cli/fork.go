package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newFork(a *app) *cobra.Command {
	var req bothy.ForkRequest
	var network networkFlags
	var timeout int
	var env, metadata []string
	cmd := &cobra.Command{
		Use:   "fork SANDBOX",
		Short: "Make running copies of a sandbox, including memory, and print their ids",
		Args:  usage(cobra.ExactArgs(1)),
	}
	flags := cmd.Flags()
	flags.IntVarP(&req.Count, "count", "n", 1, "`number` of copies")
	flags.StringVar(&req.Name, "name", "", "`name` of the copies; several are numbered")
	secondsVar(flags, &timeout, "timeout", "`time` until the copies end, as in 90s or 2h, 0 for never (default that of the original)")
	flags.StringArrayVarP(&env, "env", "e", nil, "environment variable for new commands, as `KEY=VALUE` (repeatable)")
	flags.StringArrayVar(&metadata, "metadata", nil, "metadata, as `KEY=VALUE` (repeatable)")
	flags.BoolVar(&req.Secrets, "secrets", false, "give the copies the secrets of the original, too")
	network.add(flags)
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) (err error) {
		if flags.Changed("timeout") {
			req.TimeoutSeconds = &timeout
		}
		if req.Network, err = network.network(); err != nil {
			return err
		}
		if req.Env, err = keyValues("--env", env); err != nil {
			return err
		}
		if req.Metadata, err = keyValues("--metadata", metadata); err != nil {
			return err
		}
		copies, err := s.snapshots.Fork(ctx, args[0], req)
		if err != nil {
			return err
		}
		return a.show(copies, func(w io.Writer) {
			for _, id := range sandboxIDs(copies) {
				fmt.Fprintln(w, id)
			}
		})
	})
	return cmd
}

func newRollback(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback SANDBOX SNAPSHOT",
		Short: "Return a sandbox to a snapshot",
		Long: `Return a sandbox to its state at a snapshot. Its state until now is kept as
another snapshot.`,
		Args: usage(cobra.ExactArgs(2)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		sandbox, err := s.snapshots.Rollback(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		return a.show(sandbox, func(w io.Writer) { fmt.Fprintln(w, sandbox.ID) })
	})
	return cmd
}
