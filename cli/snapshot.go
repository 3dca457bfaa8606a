package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newSnapshot(a *app) *cobra.Command {
	var req bothy.SnapshotCreate
	cmd := &cobra.Command{
		Use:        "snapshot SANDBOX",
		SuggestFor: []string{"commit", "checkpoint"},
		Short:      "Take a snapshot of a running sandbox, and print its id",
		Args:       usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().BoolVar(&req.FilesOnly, "files-only", false, "keep the files, without memory and processes")
	cmd.Flags().StringVar(&req.Name, "name", "", "`name` of the snapshot")
	waitFlag(cmd, &req.Wait)
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		snapshot, err := s.snapshots.CreateSnapshot(ctx, args[0], req)
		if err != nil {
			return err
		}
		return a.showSnapshot(snapshot, req.Wait)
	})
	cmd.AddCommand(newSnapshotExport(a), newSnapshotImport(a), newSnapshotKey(a), newSnapshotDiff(a))
	return cmd
}

// waitFlag adds the flag to wait for the object storage.
func waitFlag(cmd *cobra.Command, wait *bothy.Durable) {
	cmd.Flags().StringVar((*string)(wait), "wait", "", "end when the snapshot is in a `place`: store is the object storage")
}

func newSnapshotDiff(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "diff SNAPSHOT SNAPSHOT",
		Short: "List the files that differ between two snapshots",
		Long: `List the files that differ from one snapshot to another: A is added, M is
changed, D is removed. A file of which only the times differ is not listed.`,
		Args: usage(cobra.ExactArgs(2)),
	}
	cmd.Flags().IntVar(&limit, "limit", 1000, "show at most `count` files")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		changes, err := s.snapshots.CompareSnapshots(ctx, args[0], args[1], limit)
		if err != nil {
			return err
		}
		if changes.Truncated {
			a.warn("there are more than %d: see them with --limit, of at most 10000", limit)
		}
		letters := map[bothy.FileChangeKind]string{bothy.FileAdded: "A", bothy.FileChanged: "M", bothy.FileRemoved: "D"}
		return a.show(changes, func(w io.Writer) {
			for _, c := range changes.Items {
				name := strings.Map(printable, c.Path)
				if c.Type == bothy.FileDirectory {
					name += "/"
				}
				fmt.Fprintln(w, letters[c.Change], name)
			}
		})
	})
	return cmd
}

// showSnapshot prints the id of a new snapshot, and says if it contains less than was requested.
func (a *app) showSnapshot(n *bothy.Snapshot, wait bothy.Durable) error {
	if n.Detail != "" {
		a.warn("%s", n.Detail)
	}
	if wait == bothy.DurableStore && n.Durable != bothy.DurableStore {
		a.warn("the snapshot is on the server's disk, and not in the object storage yet")
	}
	return a.show(n, func(w io.Writer) { fmt.Fprintln(w, n.ID) })
}

func newSnapshots(a *app) *cobra.Command {
	var filter bothy.SnapshotFilter
	cmd := &cobra.Command{
		Use:   "snapshots [SANDBOX]",
		Short: "List snapshots, of one sandbox or of all",
		Args:  usage(cobra.MaximumNArgs(1)),
	}
	cmd.Flags().StringVar(&filter.Name, "name", "", "show only snapshots of this `name`")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		if len(args) == 1 {
			filter.SandboxID = args[0]
		}
		return a.snapshots(ctx, s, filter)
	})
	cmd.AddCommand(newSnapshotRemove(a))
	return cmd
}

func newSnapshotRemove(a *app) *cobra.Command {
	return newForEach(a, "rm SNAPSHOT…", "Delete snapshots", "", func(ctx context.Context, s *session, id string) error {
		return s.snapshots.DeleteSnapshot(ctx, id)
	})
}

// snapshots prints one page with --json, as the API does, and all otherwise.
func (a *app) snapshots(ctx context.Context, s *session, filter bothy.SnapshotFilter) error {
	var all []*bothy.Snapshot
	for {
		page, err := s.snapshots.Snapshots(ctx, filter)
		if err != nil {
			return err
		}
		if a.json {
			return a.show(page, nil)
		}
		all = append(all, page.Items...)
		if page.NextCursor == "" || page.NextCursor == filter.Cursor {
			printSnapshots(a.screen(), all)
			return nil
		}
		filter.Cursor = page.NextCursor
	}
}

func printSnapshots(w io.Writer, list []*bothy.Snapshot) {
	rows := make([][]string, len(list))
	for i, s := range list {
		rows[i] = []string{s.ID, orDash(s.Name), s.SandboxID, orDash(s.ParentID), string(s.Kind), size(s.SizeBytes), orDash(string(s.Durable)), age(s.CreatedAt)}
	}
	table(w, []string{"ID", "NAME", "SANDBOX", "PARENT", "KIND", "SIZE", "DURABLE", "AGE"}, rows)
}
