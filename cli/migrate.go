//go:build linux && !clientonly

package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/server"
)

func newMigrate(a *app) *cobra.Command {
	var from, to, path, blobs string
	var adopt bool
	cmd := &cobra.Command{
		Use:   "migrate {--from STORE --to STORE | --blobs-to host | --blobs-adopt}",
		Short: "Carry the server's records to PostgreSQL or back, or snapshots back to its host",
		Long: `Carry the records of the server (sandboxes, keys, events, usage, the audit and all
else) from its files to a PostgreSQL database, or back. One of the stores is
sqlite, which are the files in $BOTHY_HOME, and the other a URL. The password
is better given by PGPASSWORD or PGPASSFILE, since command lines can be seen.

The server must not run, its sandboxes may; the target must be empty. Either all
records arrive or none. Files are put aside at the end, under another name; a
database stays as it is. The setting store says from which of the two the
server starts: change it before that.

With --blobs-to host it fetches all snapshots from the object storage that the
setting blobs names, so that the server can do without it. The other way there is
nothing to do: a server that is started with blobs carries what it has.

With --blobs-adopt the place of the setting blobs becomes the server's, instead of
the one in its records, which it would refuse to start without: after a bucket was
lost, or for a new database at a bucket that was used before. It must be empty, or
marked by a server with the same secrets.key; what no record names is deleted from it
after snapshots.grace_hours. No server of the database may run.`,
		Example: `  sudo bothy down
  sudo bothy migrate --from sqlite --to postgres://bothy@db.example.org/bothy
  sudo bothy migrate --config /etc/bothy.yaml --blobs-to host`,
		Args: usage(cobra.NoArgs),
	}
	cmd.Flags().StringVar(&from, "from", "", "`store` with the records: sqlite, or a URL")
	cmd.Flags().StringVar(&to, "to", "", "empty `store`: sqlite, or a URL")
	cmd.Flags().StringVar(&blobs, "blobs-to", "", "fetch all snapshots to this `place`: host")
	cmd.Flags().BoolVar(&adopt, "blobs-adopt", false, "use the object storage of the setting blobs from now on")
	cmd.Flags().StringVar(&path, "config", "", "`file` with the server's settings")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := config.Load(path, os.Getenv)
		if err == nil {
			err = c.Finish()
		}
		if err != nil {
			return err
		}
		if (blobs != "" || adopt) && (from != "" || to != "") || blobs != "" && adopt {
			return bothy.Errorf(bothy.CodeInvalid, "--blobs-to, --blobs-adopt, and --from with --to are given together").WithHint("Do the one, and then the other.")
		}
		if adopt {
			return a.adoptBlobs(cmd.Context(), c)
		}
		if blobs != "" {
			return a.migrateBlobs(cmd.Context(), c, blobs)
		}
		return a.migrate(cmd.Context(), c, from, to)
	}
	return cmd
}

func (a *app) migrateBlobs(ctx context.Context, c config.Config, to string) error {
	m, err := server.MigrateBlobs(ctx, c, to, server.Options{Version: a.version, Log: slog.New(slog.NewTextHandler(a.stderr, nil))})
	if err != nil {
		return err
	}
	return a.show(m, func(w io.Writer) {
		fmt.Fprintf(w, "%d snapshots are on this host, of which %d were fetched. Take blobs out of the settings before you start the server.\nWhat is in the object storage stays there.\n", m.Snapshots, m.Fetched)
	})
}

func (a *app) adoptBlobs(ctx context.Context, c config.Config) error {
	m, err := server.AdoptBlobs(ctx, c, server.Options{Version: a.version, Log: slog.New(slog.NewTextHandler(a.stderr, nil))})
	if err != nil {
		return err
	}
	return a.show(m, func(w io.Writer) {
		fmt.Fprintf(w, "%s is used from the next start on. Of %d snapshots it has %d; those on the disks of hosts follow.\n", m.Location, m.Snapshots, m.Stored)
		for _, id := range m.Lost {
			fmt.Fprintf(w, "%s is neither there nor on this host.\n", id)
		}
	})
}

func (a *app) migrate(ctx context.Context, c config.Config, from, to string) error {
	m, err := server.Migrate(ctx, c, from, to, server.Options{Version: a.version, Log: slog.New(slog.NewTextHandler(a.stderr, nil))})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(m)
	}
	for _, t := range m.Tables {
		if t.Rows > 0 {
			fmt.Fprintf(a.stdout, "%9d  %s\n", t.Rows, t.Table)
		}
	}
	if m.Kept == "" {
		fmt.Fprintln(a.stdout, "The records are in files. Take store out of the settings before you start the server.")
		return nil
	}
	fmt.Fprintf(a.stdout, "The records are in the database. Set store to its URL before you start the server.\nThe files are kept as %s.\n", m.Kept)
	return nil
}
