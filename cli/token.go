package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newToken(a *app) *cobra.Command {
	return group("token", "Create, list and revoke API keys", newTokenCreate(a), newTokenList(a), newTokenRemove(a))
}

func newTokenCreate(a *app) *cobra.Command {
	var scopes []string
	var expires time.Duration
	var req bothy.TokenCreate
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Create an API key and print it",
		Long: `Create an API key and print it. It is shown only this once: the server keeps
only its hash.

The scopes are sandboxes:read, sandboxes:write, templates:read,
templates:write, metrics:read (of the whole server, in the project default) and
admin. Without --scope the key may use sandboxes and read
templates.`,
		Example: `  bothy token create ci --scope sandboxes:read,sandboxes:write --expires 720h`,
		Args:    usage(cobra.MaximumNArgs(1)),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&scopes, "scope", defaultScopes, "`scope` of what the key may do (repeatable)")
	timeVar(flags, &expires, "expires", 0, "how long the key is valid, a `time` as in 24h (default for ever)")
	flags.BoolVar(&req.E2B, "e2b", false, "create a key in the format that E2B's SDKs require")
	flags.StringVar(&req.ProjectID, "project", "", "`project` of the key (default your own)")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		req.Name = strings.Join(args, "")
		for _, scope := range scopes {
			req.Scopes = append(req.Scopes, bothy.Scope(scope))
		}
		if expires > 0 {
			at := time.Now().Add(expires).UTC().Truncate(time.Second)
			req.ExpiresAt = &at
		}
		token, err := s.tokens.CreateToken(ctx, req)
		if err != nil {
			return err
		}
		return a.show(token, func(w io.Writer) { fmt.Fprintln(w, token.Key) })
	})
	return cmd
}

var defaultScopes = []string{
	string(bothy.ScopeSandboxesRead), string(bothy.ScopeSandboxesWrite), string(bothy.ScopeTemplatesRead),
}

func newTokenList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the project's keys (the operator's: all keys), without their secrets",
		Args:  usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		tokens, err := s.tokens.Tokens(ctx)
		if err != nil {
			return err
		}
		return a.show(tokens, func(w io.Writer) { printTokens(w, tokens) })
	})
	return cmd
}

func printTokens(w io.Writer, tokens []*bothy.Token) {
	rows := make([][]string, len(tokens))
	for i, t := range tokens {
		scopes := make([]string, len(t.Scopes))
		for j, scope := range t.Scopes {
			scopes[j] = string(scope)
		}
		rows[i] = []string{t.ID, orDash(t.Name), strings.Join(scopes, ","), age(t.CreatedAt), ageOf(t.LastUsedAt), until(t.ExpiresAt)}
	}
	head := []string{"ID", "NAME", "SCOPES", "AGE", "LAST USED", "EXPIRES IN"}
	if slices.ContainsFunc(tokens, func(t *bothy.Token) bool { return t.ProjectID != tokens[0].ProjectID }) {
		head = append(head, "PROJECT")
		for i, t := range tokens {
			rows[i] = append(rows[i], t.ProjectID)
		}
	}
	table(w, head, rows)
}

func newTokenRemove(a *app) *cobra.Command {
	return newForEach(a, "rm TOKEN…", "Revoke keys immediately, by id", "", func(ctx context.Context, s *session, id string) error {
		return s.tokens.DeleteToken(ctx, id)
	})
}
