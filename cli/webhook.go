package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newWebhook(a *app) *cobra.Command {
	return group("webhook", "Send events to a URL", newWebhookCreate(a), newWebhookList(a), newWebhookGet(a), newWebhookSet(a),
		newWebhookTest(a), newWebhookRemove(a))
}

func newWebhookCreate(a *app) *cobra.Command {
	var req bothy.WebhookCreate
	cmd := &cobra.Command{
		Use:   "create URL",
		Short: "Create a webhook and print its id and secret",
		Long: `Create a webhook: the project's events from now on are sent to a URL, one after
the other. Its secret, with which requests are signed, is shown only this once.

Failed deliveries are retried for a day, and then the webhook is disabled; bothy
webhook set --enable continues where it stopped.`,
		Example: `  bothy webhook create https://hooks.example.org/bothy
  bothy webhook create https://hooks.example.org/bothy --event sandbox.ended --event sandbox.oom_killed`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&req.Name, "name", "", "`name` to know it by")
	cmd.Flags().StringArrayVar(&req.Events, "event", nil, "`type` of events to send (repeatable) (default all)")
	cmd.Flags().StringVar(&req.Secret, "secret", "", "`secret` that signs requests (default one is made)")
	cmd.Flags().BoolVar(&req.Disabled, "disabled", false, "send nothing until it is enabled")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		req.URL = args[0]
		h, err := s.webhooks.CreateWebhook(ctx, req)
		if err != nil {
			return err
		}
		return a.show(h, func(w io.Writer) { fmt.Fprintf(w, "%s\n%s\n", h.ID, h.Secret) })
	})
	return cmd
}

// webhookHealth describes the state in a word or two.
func webhookHealth(h *bothy.Webhook) string {
	switch {
	case h.DisabledReason != "":
		return "disabled: " + h.DisabledReason
	case !h.Enabled:
		return "disabled"
	case h.FailingSince != nil:
		return fmt.Sprintf("fails for %s: %s", age(*h.FailingSince), h.LastError)
	}
	return "ok"
}

func newWebhookList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List webhooks and their state",
		Args:  usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		all, err := s.webhooks.Webhooks(ctx)
		if err != nil {
			return err
		}
		return a.show(all, func(w io.Writer) {
			rows := make([][]string, len(all))
			for i, h := range all {
				events := strings.Join(h.Events, " ")
				if events == "" {
					events = "all"
				}
				rows[i] = []string{h.ID, orDash(h.Name), h.URL, events, age(h.CreatedAt), webhookHealth(h)}
			}
			table(w, []string{"ID", "NAME", "URL", "EVENTS", "AGE", "STATE"}, rows)
		})
	})
	return cmd
}

func newWebhookGet(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get WEBHOOK",
		Short: "Show a webhook and the state of its deliveries",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		h, err := s.webhooks.Webhook(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(h, func(w io.Writer) {
			fmt.Fprintf(w, "%s  %s\n%s\nlast event %d, %d refused\n", h.ID, h.URL, webhookHealth(h), h.LastEventID, h.Refused)
		})
	})
	return cmd
}

func newWebhookSet(a *app) *cobra.Command {
	var name, url, secret string
	var events []string
	var enable, disable, all bool
	cmd := &cobra.Command{
		Use:   "set WEBHOOK",
		Short: "Change, enable or disable a webhook",
		Long: `Change, enable or disable a webhook. Pending events are retried immediately, and an
enabled webhook continues with the events it missed, as far back as they are
kept.`,
		Example: `  bothy webhook set whk_1f0c5ad2b3e4f607 --enable`,
		Args:    usage(cobra.ExactArgs(1)),
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "`name` to know it by")
	f.StringVar(&url, "url", "", "`URL` to send events to")
	f.StringArrayVar(&events, "event", nil, "`type` of events to send (repeatable)")
	f.BoolVar(&all, "all-events", false, "send events of all types")
	f.StringVar(&secret, "secret", "", "`secret` that signs requests")
	f.BoolVar(&enable, "enable", false, "send events again")
	f.BoolVar(&disable, "disable", false, "send none until it is enabled")
	cmd.MarkFlagsMutuallyExclusive("enable", "disable")
	cmd.MarkFlagsMutuallyExclusive("event", "all-events")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		var u bothy.WebhookUpdate
		if f.Changed("name") {
			u.Name = &name
		}
		if f.Changed("url") {
			u.URL = &url
		}
		if f.Changed("secret") {
			u.Secret = &secret
		}
		if all || f.Changed("event") {
			u.Events = &events
		}
		if enable || disable {
			u.Enabled = &enable
		}
		if f.NFlag() == 0 {
			return usagef("Give at least one flag; see bothy webhook set --help.", "nothing is to be changed")
		}
		h, err := s.webhooks.UpdateWebhook(ctx, args[0], u)
		if err != nil {
			return err
		}
		return a.show(h, func(w io.Writer) { fmt.Fprintln(w, h.ID) })
	})
	return cmd
}

func newWebhookTest(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test WEBHOOK",
		Short: "Send an event of the type webhook.test and show the answer",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		got, err := s.webhooks.TestWebhook(ctx, args[0])
		if err != nil {
			return err
		}
		if err := a.show(got, func(w io.Writer) {
			if got.Error == "" {
				fmt.Fprintf(w, "delivered: %d in %.0f ms\n", got.Status, got.Milliseconds)
			}
		}); err != nil || got.Error == "" {
			return err
		}
		return bothy.Errorf(bothy.CodeConflict, "the event was not delivered: %s", got.Error).
			WithHint("Look at the receiver, or change the address with bothy webhook set --url.")
	})
	return cmd
}

func newWebhookRemove(a *app) *cobra.Command {
	return newForEach(a, "rm WEBHOOK…", "Delete webhooks", "", func(ctx context.Context, s *session, id string) error {
		return s.webhooks.DeleteWebhook(ctx, id)
	})
}
