package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newCreate(a *app) *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use:   "create [TEMPLATE]",
		Short: "Create a sandbox and print its id",
		Long: `Create a sandbox and print its id. It lives until it is removed or its time
is up.

The network is off unless --network says otherwise.`,
		Example: `  bothy create
  bothy create node-22 --network restricted --timeout 3600
  bothy create --checkpoint 60s --on-host-loss resume
  bothy create --size medium --name ci --metadata run=17`,
		Args: usage(cobra.MaximumNArgs(1)),
	}
	f.add(cmd.Flags())
	f.addRepo(cmd.Flags())
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		if len(args) == 1 {
			if f.template != "" && f.template != args[0] {
				return usagef("Name the template once.", "two templates were given: %s and %s", args[0], f.template)
			}
			f.template = args[0]
		}
		req, err := f.requestFor(ctx, s, cmd.Flags())
		if err != nil {
			return err
		}
		sandbox, err := a.createOffering(ctx, s, req)
		if err != nil {
			return err
		}
		return a.show(sandbox, func(w io.Writer) { fmt.Fprintln(w, sandbox.ID) })
	})
	return cmd
}
