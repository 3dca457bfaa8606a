package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func init() { register(newProject) }

func newProject(a *app) *cobra.Command {
	return group("project", "Make, list and change projects and their plans", newProjectCreate(a), newProjectList(a), newProjectSet(a))
}

const planHelp = `A plan bounds how many sandboxes run at once, their size, time and network, the
storage of snapshots, and how quickly sandboxes are made. There are starter (1
sandbox), pro (5), team (15) and unlimited.`

func newProjectCreate(a *app) *cobra.Command {
	var req bothy.ProjectCreate
	cmd := &cobra.Command{
		Use:   "create PROJECT",
		Short: "Make a project",
		Long: `Make a project: an owner of sandboxes, snapshots and keys, which nobody else
sees. Give it a key with bothy token create --project.

` + planHelp,
		Example: `  bothy project create research --plan pro
  bothy token create alice --project research`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&req.Plan, "plan", "", "`plan` of the project (default "+bothy.DefaultPlan+")")
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
				rows[i] = []string{p.ID, p.Plan, age(p.CreatedAt)}
			}
			table(w, []string{"PROJECT", "PLAN", "AGE"}, rows)
		})
	})
	return cmd
}

func newProjectSet(a *app) *cobra.Command {
	var plan string
	cmd := &cobra.Command{
		Use:   "set PROJECT",
		Short: "Give a project another plan",
		Long: `Give a project another plan, from now on. A smaller plan takes nothing away
that is in use: only more is refused.

` + planHelp,
		Example: `  bothy project set research --plan team`,
		Args:    usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&plan, "plan", "", "the `plan`")
	_ = cmd.MarkFlagRequired("plan")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		p, err := s.projects.UpdateProject(ctx, args[0], bothy.ProjectUpdate{Plan: &plan})
		if err != nil {
			return err
		}
		return a.show(p, func(w io.Writer) { fmt.Fprintln(w, p.Plan) })
	})
	return cmd
}
