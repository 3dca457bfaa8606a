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
	"github.com/bothy-dev/bothy/internal/money"
	"github.com/bothy-dev/bothy/internal/usagecsv"
)

func newUsage(a *app) *cobra.Command {
	var from, to string
	var table bool
	q := bothy.UsageQuery{Limit: 10000}
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show usage and what it costs",
		Long: `Show what the project's sandboxes, snapshots and templates have used, and what
that costs by the server's rates. The default project's admin sees all projects.

The default for --from is the beginning of the month. Usage is kept by the hour,
in UTC: --from and --to are widened to whole hours.

With --json each page of the answer is printed as the API sent it, one a line.`,
		Example: `  bothy usage
  bothy usage --from 2026-01-01 --to 2026-02-01 --group-by project,template
  bothy usage --group-by label:team --csv > january.csv`,
		Args: usage(cobra.NoArgs),
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "from when: a `time` as in 2026-01-31 or 2026-01-31T12:00:00Z (default the first of the month)")
	flags.StringVar(&to, "to", "", "until when: a `time`, which is not included (default now)")
	flags.StringSliceVar(&q.GroupBy, "group-by", nil, "what to split by: day, hour, `project`, template, sandbox, label:KEY (repeatable; default day)")
	flags.StringVar(&q.Project, "project", "", "show only this `project`")
	flags.StringVar(&q.Sandbox, "sandbox", "", "show only this `sandbox` and its snapshots")
	flags.StringVar(&q.Template, "template", "", "show only sandboxes of this `template`")
	flags.BoolVar(&table, "csv", false, "print a table for other programs")
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		var err error
		if q.From, err = dateFlag("--from", from); err != nil {
			return err
		}
		if q.To, err = dateFlag("--to", to); err != nil {
			return err
		}
		if table && a.json {
			return usagef("Give one of them.", "--csv and --json exclude each other")
		}
		var all *bothy.UsageReport
		for {
			r, err := s.usage.Usage(ctx, q)
			if err != nil {
				return err
			}
			if a.json {
				if err := a.show(r, nil); err != nil {
					return err
				}
			}
			if all == nil {
				all = r
			} else {
				all.Items = append(all.Items, r.Items...)
			}
			// The pages after the first cover the same time.
			q.From, q.To = r.From, r.To
			if q.Cursor = r.NextCursor; q.Cursor == "" {
				break
			}
		}
		switch {
		case a.json:
			return nil
		case table:
			return usagecsv.Write(a.stdout, all)
		}
		printUsage(a.screen(), all)
		return nil
	})
	return cmd
}

// dateFlag reads a time or a day.
func dateFlag(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("Write it as 2026-01-31 or 2026-01-31T12:00:00Z.", "%s %q is not a time", name, text)
}

func printUsage(w io.Writer, r *bothy.UsageReport) {
	var header []string
	for _, by := range r.GroupBy {
		header = append(header, strings.ToUpper(strings.TrimPrefix(by, bothy.UsageByLabel)))
	}
	header = append(header, "VCPU", "CPU USED", "MEMORY", "EGRESS", "INGRESS", "SNAPSHOTS", "TEMPLATES", "COST")
	row := func(groups []string, u bothy.Usage) []string {
		return append(groups, hours(u.VCPUSeconds, "h"), hours(u.CPUSeconds, "h"), hours(u.MemoryMBSeconds/1024, "GB·h"),
			size(u.EgressBytes), size(u.IngressBytes), hours(u.SnapshotMBSeconds/1024, "GB·h"), hours(u.TemplateMBSeconds/1024, "GB·h"),
			money.Text(u.Cost)+" "+r.Currency)
	}
	var rows [][]string
	for _, i := range r.Items {
		var groups []string
		for _, by := range r.GroupBy {
			groups = append(groups, orDash(strings.Map(printable, i.Group(by))))
		}
		rows = append(rows, row(groups, i.Usage))
	}
	total := make([]string, len(r.GroupBy))
	total[0] = "total"
	table(w, header, append(rows, row(total, r.Total)))
}

// hours prints seconds as hours.
func hours(seconds float64, unit string) string {
	return strconv.FormatFloat(seconds/3600, 'f', 4, 64) + " " + unit
}

func newBudget(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "budget SANDBOX AMOUNT",
		Short: "Limit what a sandbox and its forks may spend",
		Long: `Limit what a sandbox, and everything forked from it before or later, may spend,
in the currency of the server's rates; 0 removes the limit. When it is used up
they are paused, with their memory, and can be resumed when it has been raised.`,
		Example: `  bothy budget sbx4f2a 2.50`,
		Args:    usage(cobra.ExactArgs(2)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		amount, err := amountOf(args[1])
		if err != nil {
			return err
		}
		sb, err := s.sandboxes.Update(ctx, args[0], bothy.SandboxUpdate{Budget: &amount})
		if err != nil {
			return err
		}
		return a.show(sb, func(w io.Writer) { fmt.Fprintln(w, money.Text(sb.Budget)) })
	})
	return cmd
}

// amountOf reads an amount of money.
func amountOf(text string) (float64, error) {
	amount, err := strconv.ParseFloat(text, 64)
	if err == nil {
		err = bothy.CheckBudget(amount)
	}
	if err != nil {
		return 0, usagef("Write an amount of money as 2.50, or 0 for no bound.", "%q is not a budget", text)
	}
	return amount, nil
}
