package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/money"
)

func newProject(a *app) *cobra.Command {
	return group("project", "Create, list and change projects and their plans", newProjectCreate(a), newProjectList(a), newProjectSet(a))
}

const planHelp = `A plan bounds how many sandboxes run at once, their size, time and network, the
storage of snapshots, and how quickly sandboxes are made. There are starter (1
sandbox), pro (5), team (15) and unlimited.`

func newProjectCreate(a *app) *cobra.Command {
	var req bothy.ProjectCreate
	cmd := &cobra.Command{
		Use:   "create PROJECT",
		Short: "Create a project",
		Long: `Create a project, which owns sandboxes, snapshots and keys that no other project
sees. Give it a key with bothy token create --project.

` + planHelp,
		Example: `  bothy project create research --plan pro
  bothy token create alice --project research`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&req.Plan, "plan", "", "`plan` of the project (default "+bothy.DefaultPlan+")")
	cmd.Flags().Float64Var(&req.Budget, "budget", 0, "`amount` that it may spend in a month (default any)")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		req.ID = args[0]
		p, err := s.projects.CreateProject(ctx, req)
		if err != nil {
			return err
		}
		return a.show(p, func(w io.Writer) { fmt.Fprintln(w, p.ID) })
	})
	return cmd
}

func newProjectList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List projects and their plans",
		Args:  usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		all, err := s.projects.Projects(ctx)
		if err != nil {
			return err
		}
		return a.show(all, func(w io.Writer) {
			rows := make([][]string, len(all))
			for i, p := range all {
				rows[i] = []string{p.ID, p.Plan, orDash(budgetText(p.Budget)), age(p.CreatedAt)}
			}
			table(w, []string{"PROJECT", "PLAN", "BUDGET", "AGE"}, rows)
		})
	})
	return cmd
}

func newProjectSet(a *app) *cobra.Command {
	var plan string
	var budget float64
	cmd := &cobra.Command{
		Use:   "set PROJECT",
		Short: "Change a project's plan or budget",
		Long: `Change a project's plan or budget, from now on. A smaller plan takes away
nothing that is in use; it only refuses more.

A budget is what the project may spend in a calendar month (UTC), in the currency
of the server's rates; 0 removes it. At 80 % there is an event budget.warning.
When it is used up there is an event budget.exceeded, the project's sandboxes
are paused, with their memory, and nothing more may run until the budget is
raised or the month is over.

` + planHelp,
		Example: `  bothy project set research --plan team
  bothy project set research --budget 250`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&plan, "plan", "", "the `plan`")
	cmd.Flags().Float64Var(&budget, "budget", 0, "`amount` that it may spend in a month, 0 for any")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		var u bothy.ProjectUpdate
		if cmd.Flags().Changed("plan") {
			u.Plan = &plan
		}
		if cmd.Flags().Changed("budget") {
			u.Budget = &budget
		}
		if u == (bothy.ProjectUpdate{}) {
			return usageError(cmd, errors.New("neither --plan nor --budget was given"))
		}
		p, err := s.projects.UpdateProject(ctx, args[0], u)
		if err != nil {
			return err
		}
		return a.show(p, func(w io.Writer) { fmt.Fprintln(w, strings.TrimSpace(p.Plan+" "+budgetText(p.Budget))) })
	})
	return cmd
}

// budgetText shows how much of a budget is spent.
func budgetText(b *bothy.BudgetState) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf("%s of %s %s", money.Text(b.Used), money.Text(b.Limit), b.Currency)
}
