//go:build linux && !clientonly

package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/server"
)

func newHostJoin(a *app) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "join TOKEN",
		Short: "Make this computer a host of a cluster",
		Long: `Fetch what a server needs to share a database with other hosts into an empty
$BOTHY_HOME, and print the settings that it needs in addition. bothy host add makes the
token on an existing host, whose cluster.listen must be reachable from here. Start the
server afterwards, with these settings.`,
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
