package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newPause(a *app) *cobra.Command {
	var options bothy.PauseOptions
	cmd := &cobra.Command{
		Use:        "pause SANDBOX",
		SuggestFor: []string{"stop", "suspend", "freeze"},
		Short:      "Freeze a sandbox, and print the id of its snapshot",
		Long: `Freeze a sandbox: its memory, its processes and its files. It stays in the list,
and takes neither CPU nor memory until it is resumed.

When the command ends, the snapshot is safely on the server's disk. With --wait
store the command ends when it is in the server's object storage as well.`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().BoolVar(&options.FilesOnly, "files-only", false, "keep the files and drop memory and processes")
	cmd.Flags().StringVar(&options.Name, "name", "", "`name` of the snapshot")
	waitFlag(cmd, &options.Wait)
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		snapshot, err := s.snapshots.Pause(ctx, args[0], options)
		if err != nil {
			return err
		}
		return a.showSnapshot(snapshot, options.Wait)
	})
	return cmd
}

func newResume(a *app) *cobra.Command {
	var options bothy.ResumeOptions
	cmd := &cobra.Command{
		Use:     "resume SANDBOX|SNAPSHOT",
		Aliases: []string{"unpause", "start"},
		Short:   "Wake a paused sandbox, exactly where it was",
		Long: `Resume a paused sandbox with its memory and processes. If only its files could be
kept, it says so on standard error, with the reason.

With --files-only its memory is discarded: it restarts with its files, which
helps if the programs in it are stuck.`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().BoolVar(&options.FilesOnly, "files-only", false, "discard memory and processes, and restart with the files")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		sandbox, err := s.snapshots.Resume(ctx, args[0], options)
		if err != nil {
			return err
		}
		if r := sandbox.Resumed; r != nil && r.Kind == bothy.SnapshotFiles && !options.FilesOnly {
			fmt.Fprintf(a.stderr, "bothy: no processes were resumed: %s\n", r.Detail)
		}
		return a.show(sandbox, func(w io.Writer) { fmt.Fprintln(w, sandbox.ID) })
	})
	return cmd
}

func newRestart(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restart SANDBOX",
		Short: "Start a sandbox that has failed again, from what it was made from",
		Long: `Start a failed sandbox, such as one whose host was lost, again under its id and with its
settings: from the snapshot that it was made from, if that still exists, or else from its
template. Its changes are lost.`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		sandbox, err := s.sandboxes.Restart(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(sandbox, func(w io.Writer) { fmt.Fprintln(w, sandbox.ID) })
	})
	return cmd
}
