package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newLimits(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Show what the project may use, and how much it uses",
		Args:  usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		l, err := s.limits.Limits(ctx)
		if err != nil {
			return err
		}
		return a.show(l, func(w io.Writer) { printLimits(w, l) })
	})
	return cmd
}

func networkModes(modes []bothy.NetworkMode) string {
	list := make([]string, len(modes))
	for i, mode := range modes {
		list[i] = string(mode)
	}
	return strings.Join(list, ", ")
}

func storage(u bothy.InUseMB) string {
	limit := "any size"
	if u.LimitMB != nil {
		limit = size(*u.LimitMB << 20)
	}
	return size(u.UsedMB<<20) + " of " + limit
}

func printLimits(w io.Writer, l *bothy.PlanLimits) {
	sandboxes, longest := "any number", "as long as wanted"
	if l.Sandboxes.Limit != nil {
		sandboxes = strconv.Itoa(*l.Sandboxes.Limit)
	}
	if l.Sandbox.TimeoutSeconds > 0 {
		longest = span(time.Duration(l.Sandbox.TimeoutSeconds) * time.Second)
	}
	fields(w,
		"plan", l.Plan,
		"sandboxes", fmt.Sprintf("%d of %s", l.Sandboxes.Used, sandboxes),
		"snapshots", storage(l.Snapshots),
		"templates", storage(l.Templates),
		"each sandbox", fmt.Sprintf("%s CPUs, %s of memory, %s of disk, %s", strconv.FormatFloat(l.Sandbox.CPU, 'g', -1, 64),
			size(int64(l.Sandbox.MemoryMB)<<20), size(int64(l.Sandbox.DiskMB)<<20), longest),
		"networks", networkModes(l.Sandbox.Networks),
		"budget", budgetText(l.Budget),
	)
}
