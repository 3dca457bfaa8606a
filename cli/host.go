package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/server"
)

func newHost(a *app) *cobra.Command {
	return group("host", "See and manage the hosts that share a database", newHostList(a), newHostAdd(a), newHostJoin(a),
		newHostState(a, "cordon", bothy.HostCordoned, "Give hosts no new sandboxes; those that they have continue"),
		newHostState(a, "uncordon", bothy.HostUp, "Have cordoned hosts take new sandboxes again"),
		newHostRemove(a))
}

func newHostList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List hosts, what they do and how much they have",
		Args:  usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		all, err := s.hosts.Hosts(ctx)
		if err != nil {
			return err
		}
		return a.show(all, func(w io.Writer) {
			rows := make([][]string, len(all))
			for i, h := range all {
				name := h.Name
				if h.Self {
					name += " (answers)"
				}
				rows[i] = []string{
					name, string(h.State), h.Address, strconv.Itoa(h.Sandboxes), strconv.Itoa(h.Live), strconv.Itoa(h.CPUs),
					fmt.Sprintf("%d of %d MB", h.FreeMemoryBytes>>20, h.MemoryBytes>>20), fmt.Sprintf("%.0f s", h.LeaseSeconds),
				}
			}
			table(w, []string{"HOST", "STATE", "ADDRESS", "SANDBOXES", "RUNNING", "CPUS", "FREE MEMORY", "LEASE"}, rows)
		})
	})
	return cmd
}

func newHostAdd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Print the command with which another host joins",
		Long: `Print the command to run on a new host. Its token is good once, for an hour. Whoever
has it gets the key of all secrets, so carry it over a way that you trust.`,
		Args: usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		i, err := s.hosts.InviteHost(ctx)
		if err != nil {
			return err
		}
		return a.show(i, func(w io.Writer) { fmt.Fprintln(w, i.Command) })
	})
	return cmd
}

func newHostJoin(a *app) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "join TOKEN",
		Short: "Make this computer a host of a cluster",
		Long: `Fetch what a server needs to share a database with other hosts into an empty
$BOTHY_HOME, and print the settings that it needs beside. bothy host add makes the
token on a host that is there already, whose cluster.listen must be reached from
here. The server is started after that, with these settings.`,
		Example: "  sudo bothy host join bothyhost_eyJhIjoi…",
		Args:    usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&path, "config", "", "`file` with the server's settings")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := config.Load(path, os.Getenv)
		if err != nil {
			return err
		}
		store, err := server.JoinCluster(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		return a.show(map[string]string{"store": store, "home": c.Home}, func(w io.Writer) {
			fmt.Fprintf(w, "%s has the key of the cluster's secrets. Put this into the settings, with a name and an\naddress of this host's own, and the password of the database into PGPASSWORD or PGPASSFILE:\n\n"+
				"store: %s\ncluster:\n  name: NAME\n  listen: ADDRESS:7710\n\nThen start the server.\n", c.Home, store)
		})
	}
	return cmd
}

func newHostState(a *app, verb string, state bothy.HostState, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   verb + " HOST…",
		Short: short,
		Args:  usage(cobra.MinimumNArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		return a.each(args, func(name string) error {
			_, err := s.hosts.SetHostState(ctx, name, state)
			return err
		})
	})
	return cmd
}

func newHostRemove(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm HOST…",
		Short: "Forget hosts that are lost and have no sandboxes",
		Args:  usage(cobra.MinimumNArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		return a.each(args, func(name string) error { return s.hosts.RemoveHost(ctx, name) })
	})
	return cmd
}
