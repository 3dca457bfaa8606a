package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newEvents(a *app) *cobra.Command {
	var f bothy.EventFilter
	var fresh bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what happened to the project's sandboxes",
		Long: `Show what happened to the project's sandboxes, snapshots and templates.

With --json each event is printed as the API sent it, one a line.`,
		Example: `  bothy events -f
  bothy events -f --new --sandbox SANDBOX
  bothy events --since 1042 --json`,
		Args: usage(cobra.NoArgs),
	}
	cmd.Flags().BoolVarP(&f.Follow, "follow", "f", false, "keep following until interrupted")
	cmd.Flags().Int64Var(&f.Since, "since", 0, "show only events after this `id`")
	cmd.Flags().StringVar(&f.SandboxID, "sandbox", "", "show only events of this `sandbox`")
	cmd.Flags().BoolVar(&fresh, "new", false, "with --follow, show only what happens from now on")
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		if fresh {
			if !f.Follow {
				return usageError(cmd, errors.New("--new shows what happens from now on: give --follow, too"))
			}
			last, err := s.events.LastEvent(ctx)
			if err != nil {
				return err
			}
			f.Since = max(f.Since, last)
		}
		err := s.events.Events(ctx, f, func(e bothy.Event) error {
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
