package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newNetwork(a *app) *cobra.Command {
	return group("network", "Show and change what a sandbox may reach", newNetworkGet(a), newNetworkSet(a), newNetworkSecrets(a), newNetworkLog(a))
}

func newNetworkGet(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get SANDBOX",
		Short: "Show what a sandbox may reach",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		sandbox, err := s.sandboxes.Get(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(sandbox, func(w io.Writer) { printNetwork(w, sandbox.Network) })
	})
	return cmd
}

func printNetwork(w io.Writer, n bothy.Network) {
	ports := make([]string, len(n.AllowPorts))
	for i, port := range n.AllowPorts {
		ports[i] = strconv.Itoa(int(port))
	}
	if n.IsPlain() {
		fmt.Fprintln(w, networkMode(n))
		return
	}
	fields(w,
		"mode", string(n.Mode),
		"presets", strings.Join(n.Presets, ", "),
		"domains", strings.Join(n.AllowDomains, ", "),
		"addresses", strings.Join(rangesOf(n.AllowCIDRs), ", "),
		"ports", strings.Join(ports, ", "),
		"denied", strings.Join(rangesOf(n.DenyCIDRs), ", "),
	)
}

// networkText describes a policy in one line.
func networkText(n bothy.Network) string {
	if n.IsPlain() {
		return networkMode(n)
	}
	parts := slices.Concat(n.Presets, n.AllowDomains, rangesOf(n.AllowCIDRs))
	for _, port := range n.AllowPorts {
		parts = append(parts, "port "+strconv.Itoa(int(port)))
	}
	for _, denied := range rangesOf(n.DenyCIDRs) {
		parts = append(parts, "not "+denied)
	}
	return fmt.Sprintf("%s: %s", n.Mode, strings.Join(parts, ", "))
}

func rangesOf(ranges []netip.Prefix) []string {
	list := make([]string, len(ranges))
	for i, r := range ranges {
		list[i] = r.String()
	}
	return list
}

func newNetworkSecrets(a *app) *cobra.Command {
	var words []string
	cmd := &cobra.Command{
		Use:   "secrets SANDBOX",
		Short: "Replace the secrets of a sandbox, immediately",
		Long: `Replace the secrets of a sandbox with those given here. Secrets that keep their
name keep their placeholder. Running commands keep their environment.`,
		Example: `  bothy network secrets sbx4f2a --secret API_KEY@api.example.com
  bothy network secrets sbx4f2a --none`,
		Args: usage(cobra.ExactArgs(1)),
	}
	none := cmd.Flags().Bool("none", false, "leave it none")
	cmd.Flags().StringArrayVar(&words, "secret", nil, "secret that the gateway inserts into requests to its hosts, as `NAME@HOST,…`; its value is $NAME here (repeatable)")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		if *none == (len(words) > 0) {
			return usagef("Name secrets with --secret, or give --none.", "either secrets or --none are wanted")
		}
		list, err := secrets(words)
		if err != nil {
			return err
		}
		sandbox, err := s.sandboxes.Update(ctx, args[0], bothy.SandboxUpdate{Secrets: append([]bothy.Secret{}, list...)})
		if err != nil {
			return err
		}
		return a.show(sandbox, func(w io.Writer) { fmt.Fprintln(w, strings.Join(sandbox.SecretNames, "\n")) })
	})
	return cmd
}

func newNetworkSet(a *app) *cobra.Command {
	var f networkFlags
	cmd := &cobra.Command{
		Use:   "set SANDBOX [MODE]",
		Short: "Change what a sandbox may reach, immediately",
		Long: `Change what a sandbox may reach: off, restricted or open, or a list of what
is allowed. Connections that are no longer allowed are cut.`,
		Example: `  bothy network set sbx4f2a off
  bothy network set sbx4f2a --preset pypi --allow-domain '*.example.org'`,
		Args: usage(cobra.RangeArgs(1, 2)),
	}
	f.add(cmd.Flags())
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		if len(args) == 2 {
			f.mode = args[1]
		}
		n, err := f.network()
		if err == nil && n == nil {
			err = usagef("Name a mode, or use flags such as --allow-domain.", "nothing was said about what is allowed")
		}
		if err != nil {
			return err
		}
		sandbox, err := s.sandboxes.Update(ctx, args[0], bothy.SandboxUpdate{Network: n})
		if err != nil {
			return err
		}
		return a.show(sandbox, func(w io.Writer) { printNetwork(w, sandbox.Network) })
	})
	return cmd
}

func newNetworkLog(a *app) *cobra.Command {
	var follow bool
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "log SANDBOX",
		Short: "Show what a sandbox tried to reach",
		Long: `Show what a sandbox tried to reach, and the gateway's decisions.

With --json each decision is printed as the API sent it, one a line.`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep following until interrupted")
	timeVar(cmd.Flags(), &since, "since", 0, "how far to look back, a `time` as in 10m (default all that is held)")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		var from time.Time
		if since > 0 {
			from = time.Now().Add(-since)
		}
		err := s.network.NetworkLog(ctx, args[0], from, follow, func(d bothy.NetworkDecision) error {
			if a.json {
				return a.printJSON(d)
			}
			return printDecision(a.stdout, d)
		})
		return followed(ctx, err)
	})
	return cmd
}

// followed turns the end of following by Ctrl-C into success.
func followed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func printDecision(w io.Writer, d bothy.NetworkDecision) error {
	verdict, why := "refused", d.Reason
	if d.Allowed {
		verdict, why = "allowed", d.Rule
	}
	if d.Closed {
		verdict, why = "closed", fmt.Sprintf("sent %s, received %s", size(d.BytesOut), size(d.BytesIn))
	}
	if d.Repeated > 1 {
		why += fmt.Sprintf(" (%d times)", d.Repeated)
	}
	line := fmt.Sprintf("%s  %-7s  %-4s  %s  %s", d.Time.UTC().Format(time.TimeOnly), verdict, d.Protocol, destination(d), why)
	_, err := fmt.Fprintln(w, strings.TrimRight(strings.Map(printable, line), " "))
	return err
}

func destination(d bothy.NetworkDecision) string {
	to := d.Name
	if to == "" {
		to = d.Address
	}
	if d.Port != 0 {
		to += ":" + strconv.Itoa(int(d.Port))
	}
	return to
}
