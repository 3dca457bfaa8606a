package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newLink(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "link",
		Short: "Create, list and revoke links to ports of sandboxes",
		Long: `Create, list and revoke links to ports of sandboxes. A link works without a key
until it expires or is revoked, and ends with its sandbox and with the key that
created it.`,
		Args: usage(cobra.NoArgs),
	}
	cmd.AddCommand(newLinkCreate(a), newLinkList(a), newLinkRemove(a))
	return cmd
}

func newLinkCreate(a *app) *cobra.Command {
	var webhook bool
	var req bothy.LinkCreate
	cmd := &cobra.Command{
		Use:   "create SANDBOX PORT",
		Short: "Create a link to a port and print it",
		Long: `Create a link to the HTTP server on a port of a sandbox, and print it. It is
shown only this once.

A link is for a browser, which keeps it in a cookie. After it was opened, only
the sandbox's own pages may send requests that change something, or open
WebSockets. A link created with --webhook is for programs: the path that they
call is appended to it, requests with any method pass through, and nothing is
redirected.`,
		Example: `  bothy link create sbx4f2a 8000
  bothy link create sbx4f2a 8000 --webhook --expires 24h`,
		Args: usage(cobra.ExactArgs(2)),
	}
	cmd.Flags().BoolVar(&webhook, "webhook", false, "make a link for programs that send requests of their own")
	cmd.Flags().BoolVar(&req.KeepHost, "keep-host", false, "let the server see the link's host name, instead of localhost and its port")
	timeVar(cmd.Flags(), &req.For, "expires", time.Hour, "how long the link can be used, a `time` as in 24h, of seven days at most")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		var err error
		if req.Port, err = portNumber(args[1]); err != nil {
			return err
		}
		if webhook {
			req.Kind = bothy.LinkWebhook
		}
		link, err := s.links.CreateLink(ctx, args[0], req)
		if err != nil {
			return err
		}
		return a.show(link, func(w io.Writer) { fmt.Fprintln(w, link.URL) })
	})
	return cmd
}

func portNumber(text string) (int, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, usagef("Give a number from 1 to 65535.", "%q is not a port", text)
	}
	return int(port), nil
}

func newLinkList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls SANDBOX",
		Short: "List the links to a sandbox's ports that can be used",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		links, err := s.links.Links(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(links, func(w io.Writer) {
			rows := make([][]string, len(links))
			for i, l := range links {
				rows[i] = []string{l.ID, strconv.Itoa(l.Port), string(l.Kind), orDash(l.TokenName), age(l.CreatedAt), until(&l.ExpiresAt)}
			}
			table(w, []string{"ID", "PORT", "KIND", "KEY", "AGE", "EXPIRES IN"}, rows)
		})
	})
	return cmd
}

func newLinkRemove(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm SANDBOX LINK…",
		Short: "Revoke links immediately",
		Args:  usage(cobra.MinimumNArgs(2)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		return a.each(args[1:], func(id string) error { return s.links.DeleteLink(ctx, args[0], id) })
	})
	return cmd
}
