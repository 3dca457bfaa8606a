package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/audit"
)

// auditPoll is how often -f looks for new records.
const auditPoll = time.Second

type auditFlags struct {
	filter       bothy.AuditFilter
	since, until string
	follow       bool
	limit        int
}

func newAudit(a *app) *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who did what",
		Long: `Show who did what, when, from where, and with what result, including refused
attempts; newest first. The key must have the scope admin. A key of the default
project sees all projects, any other its own.

With --json each record is printed as the API sent it, one a line.`,
		Example: `  bothy audit --since 24h
  bothy audit --sandbox sbx1 --oldest
  bothy audit --refused -f
  bothy audit --oldest --limit 0 --json >audit.jsonl`,
		Args: usage(cobra.NoArgs),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "only from this `time` on: 2026-03-01T12:00:00Z, or 24h for the last day")
	flags.StringVar(&f.until, "until", "", "only before this `time`")
	flags.StringVar(&f.filter.Action, "action", "", "only this `action`, such as exec or mcp:run_shell")
	flags.StringVar(&f.filter.TokenID, "token", "", "only what the `token` with this id did")
	flags.StringVar(&f.filter.SandboxID, "sandbox", "", "only what was done to this `sandbox`")
	flags.StringVar(&f.filter.ProjectID, "project", "", "only this `project`")
	flags.BoolVar(&f.filter.Refused, "refused", false, "only what was refused")
	flags.BoolVar(&f.filter.Oldest, "oldest", false, "show the oldest first")
	flags.Int64Var(&f.filter.Cursor, "after", 0, "continue from the record with this `id`")
	flags.IntVar(&f.limit, "limit", 100, "show at most so many; 0 shows all")
	flags.BoolVarP(&f.follow, "follow", "f", false, "show new ones until interrupted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		now := time.Now()
		for _, x := range []struct {
			name, text string
			to         *time.Time
		}{{"since", f.since, &f.filter.Since}, {"until", f.until, &f.filter.Until}} {
			t, err := timeOf(x.text, now)
			if err != nil {
				return usageError(cmd, fmt.Errorf("--%s %q is not a time", x.name, x.text))
			}
			*x.to = t
		}
		if f.limit < 0 {
			return usageError(cmd, fmt.Errorf("--limit %d is negative", f.limit))
		}
		return a.do(func(ctx context.Context, s *session, _ []string) error { return a.audit(ctx, s, f) })(cmd, args)
	}
	cmd.AddCommand(newAuditVerify(a))
	return cmd
}

// timeOf reads a time, or a duration before now.
func timeOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	return time.Parse(time.RFC3339, text)
}

func (a *app) audit(ctx context.Context, s *session, f auditFlags) error {
	last, err := a.auditPages(ctx, s, f.filter, f.limit)
	if err != nil || !f.follow {
		return err
	}
	f.filter.Oldest = true
	f.filter.Cursor = max(last, f.filter.Cursor)
	for {
		select {
		case <-ctx.Done():
			return followed(ctx, nil)
		case <-time.After(auditPoll):
		}
		if last, err = a.auditPages(ctx, s, f.filter, 0); err != nil {
			return followed(ctx, err)
		}
		f.filter.Cursor = max(last, f.filter.Cursor)
	}
}

// auditPages prints up to limit records, or all, and returns the highest id.
func (a *app) auditPages(ctx context.Context, s *session, f bothy.AuditFilter, limit int) (last int64, err error) {
	for shown := 0; ; {
		f.Limit = 1000
		if limit > 0 {
			f.Limit = min(limit-shown, f.Limit)
		}
		p, err := s.audit.Audit(ctx, f)
		if err != nil {
			return last, err
		}
		for _, r := range p.Items {
			last = max(last, r.ID)
			if err := a.printAudit(r); err != nil {
				return last, err
			}
		}
		shown += len(p.Items)
		if p.NextCursor == "" || limit > 0 && shown >= limit {
			return last, nil
		}
		if f.Cursor, err = strconv.ParseInt(p.NextCursor, 10, 64); err != nil {
			return last, err
		}
	}
}

func (a *app) printAudit(r bothy.AuditRecord) error {
	if a.json {
		return a.printJSON(r)
	}
	who := orDash(r.TokenID)
	if r.TokenName != "" {
		who += "(" + r.TokenName + ")"
	}
	result := strconv.Itoa(r.Status)
	if r.Code != "" {
		result += " " + string(r.Code)
	}
	if r.Count > 0 {
		result += fmt.Sprintf(" (%d times)", r.Count)
	}
	line := fmt.Sprintf("%d  %s  %s  %s  %s  %-18s  %s  %s  %s", r.ID, r.Time.UTC().Format(time.RFC3339), orDash(r.ProjectID), who,
		orDash(r.Remote), r.Action, orDash(strings.TrimSpace(r.SandboxID+" "+r.Object)), result, r.Command)
	_, err := fmt.Fprintln(a.stdout, strings.TrimRight(strings.Map(printable, line), " "))
	return err
}

func newAuditVerify(a *app) *cobra.Command {
	var head string
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Check that no record was altered",
		Long: `Check that no record was altered. Each record's hash covers the record and the
previous hash, so that none can be changed, removed or inserted without changing
all that follow. It prints the last record's number and hash: keep them
elsewhere, and --head proves later that nothing up to there was rewritten.

With FILE it checks what bothy audit --oldest --json has printed, without a
server; - is standard input.`,
		Example: `  bothy audit verify
  bothy audit verify --head 1042:HASH
  bothy audit verify audit.jsonl`,
		Args: usage(cobra.MaximumNArgs(1)),
	}
	cmd.Flags().StringVar(&head, "head", "", "`number:hash` that an earlier check printed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var at int64
		var hash string
		if head != "" {
			number, rest, _ := strings.Cut(head, ":")
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil || n < 1 || rest == "" {
				return usageError(cmd, fmt.Errorf("--head %q is not a number, a colon and a hash", head))
			}
			at, hash = n, rest
		}
		if len(args) == 1 {
			if head != "" {
				return usageError(cmd, fmt.Errorf("--head is for the server's records, not for a file"))
			}
			c, err := a.checkExport(args[0])
			if err != nil {
				return err
			}
			return a.showCheck(c)
		}
		return a.do(func(ctx context.Context, s *session, _ []string) error {
			c, err := s.audit.CheckAudit(ctx, at, hash)
			if err != nil {
				return err
			}
			return a.showCheck(c)
		})(cmd, nil)
	}
	return cmd
}

func (a *app) checkExport(name string) (*bothy.AuditCheck, error) {
	if name == "-" {
		return audit.CheckExport(a.stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return audit.CheckExport(f)
}

func (a *app) showCheck(c *bothy.AuditCheck) error {
	err := a.show(c, func(w io.Writer) {
		if c.OK {
			fmt.Fprintf(w, "%d records, none altered\nhead %d:%s\n", c.Records, c.Last, c.Head)
		}
	})
	if err != nil || c.OK {
		return err
	}
	return bothy.Errorf(bothy.CodeConflict, "record %d of the audit was altered: %s", c.Broken, c.Detail).
		WithHint("The %d records before it are unaltered; compare with a backup.", c.Records)
}
