package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newContext(a *app) *cobra.Command {
	return group("context", "Create, list, interrupt and end contexts, in which code runs", newContextCreate(a), newContextList(a),
		newContextDo(a, "interrupt", "Interrupt the code that runs in a context", func(s *session) contextAction { return s.code.InterruptContext }),
		newContextDo(a, "restart", "Reset a context: its variables are forgotten", func(s *session) contextAction { return s.code.RestartContext }),
		newContextDo(a, "rm", "End a context and the code in it", func(s *session) contextAction { return s.code.DeleteContext }))
}

func newContextCreate(a *app) *cobra.Command {
	var req bothy.CodeContextCreate
	cmd := &cobra.Command{
		Use:   "create SANDBOX",
		Short: "Create a context with its own variables, and print its id",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVarP(&req.Language, "language", "l", "", "python, javascript or bash (default python)")
	cmd.Flags().StringVarP(&req.Cwd, "cwd", "w", "", "`folder` in which its code runs (default /workspace)")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		made, err := s.code.CreateContext(ctx, args[0], req)
		if err != nil {
			return err
		}
		return a.show(made, func(w io.Writer) { fmt.Fprintln(w, made.ID) })
	})
	return cmd
}

func newContextList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls SANDBOX",
		Short: "List the contexts of a sandbox",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		list, err := s.code.Contexts(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(list, func(w io.Writer) {
			rows := make([][]string, len(list))
			for i, c := range list {
				rows[i] = []string{c.ID, c.Language, orDash(c.Cwd), age(c.CreatedAt)}
			}
			table(w, []string{"CONTEXT", "LANGUAGE", "FOLDER", "AGE"}, rows)
		})
	})
	return cmd
}

type contextAction func(ctx context.Context, id, contextID string) error

func newContextDo(a *app, verb, short string, pick func(*session) contextAction) *cobra.Command {
	cmd := &cobra.Command{Use: verb + " SANDBOX CONTEXT", Short: short, Args: usage(cobra.ExactArgs(2))}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error { return pick(s)(ctx, args[0], args[1]) })
	return cmd
}
