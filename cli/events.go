package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newEvents(a *app) *cobra.Command {
	var follow bool
	var since int64
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what happened to the project's sandboxes",
		Long: `Show what happened to the project's sandboxes, snapshots and templates.

With --json each event is printed as the API sent it, one a line.`,
		Example: `  bothy events -f
  bothy events --since 1042 --json`,
		Args: usage(cobra.NoArgs),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until interrupted")
	cmd.Flags().Int64Var(&since, "since", 0, "show only events after this `id`")
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		err := s.events.Events(ctx, since, follow, func(e bothy.Event) error {
			if a.json {
				return a.printJSON(e)
			}
			line := fmt.Sprintf("%d  %s  %-20s  %s  %s", e.ID, e.Time.UTC().Format(time.RFC3339), e.Type, orDash(e.SandboxID), pairs(e.Data))
			_, err := fmt.Fprintln(a.stdout, strings.TrimRight(strings.Map(printable, line), " "))
			return err
		})
		return followed(ctx, err)
	})
	return cmd
}
