package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newFiles(a *app) *cobra.Command {
	var user string
	cmd := group("files", "View and change the files of a sandbox",
		newFilesList(a, &user), newFilesStat(a, &user), newFilesRead(a, &user), newFilesWrite(a, &user), newFilesMkdir(a, &user),
		newFilesMove(a, &user), newFilesRemove(a, &user), newFilesWatch(a, &user))
	cmd.Long = `View and change the files of a sandbox. Relative paths start at /workspace. For
whole folders, and to keep times and permissions, use bothy cp.`
	for _, child := range cmd.Commands() {
		child.Flags().StringVarP(&user, "user", "u", "", "`user` who does it (default user)")
	}
	return cmd
}

func newFilesList(a *app, user *string) *cobra.Command {
	var depth int
	cmd := &cobra.Command{
		Use:   "ls SANDBOX [PATH]",
		Short: "List a folder",
		Args:  usage(cobra.RangeArgs(1, 2)),
	}
	cmd.Flags().IntVar(&depth, "depth", 1, "how many levels to list")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		list, err := s.files.List(ctx, args[0], append(args, ".")[1], *user, depth)
		if err != nil {
			return err
		}
		return a.show(list, func(w io.Writer) {
			rows := make([][]string, len(list))
			for i, f := range list {
				rows[i] = fileRow(f)
			}
			table(w, []string{"MODE", "OWNER", "SIZE", "CHANGED", "PATH"}, rows)
		})
	})
	return cmd
}

func fileRow(f bothy.FileInfo) []string {
	name := strings.Map(printable, f.Path)
	switch {
	case f.LinkTarget != "":
		name += " -> " + strings.Map(printable, f.LinkTarget)
	case f.Type == bothy.FileDirectory:
		name += "/"
	}
	return []string{f.Mode, orDash(f.Owner), strconv.FormatInt(f.Size, 10), f.ModifiedAt.UTC().Format(time.RFC3339), name}
}

func newFilesStat(a *app, user *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stat SANDBOX PATH",
		Short: "Describe a file or folder",
		Args:  usage(cobra.ExactArgs(2)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		f, err := s.files.Stat(ctx, args[0], args[1], *user)
		if err != nil {
			return err
		}
		return a.showFile(f)
	})
	return cmd
}

func (a *app) showFile(f *bothy.FileInfo) error {
	return a.show(f, func(w io.Writer) {
		fields(w, "path", strings.Map(printable, f.Path), "type", string(f.Type), "size", strconv.FormatInt(f.Size, 10), "mode", f.Mode,
			"owner", fmt.Sprintf("%s (%d:%d)", orDash(f.Owner), f.UID, f.GID), "changed", f.ModifiedAt.UTC().Format(time.RFC3339Nano),
			"links to", strings.Map(printable, f.LinkTarget))
	})
}

func newFilesRead(a *app, user *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "read SANDBOX PATH",
		Short: "Write a file's bytes to standard output",
		Args:  usage(cobra.ExactArgs(2)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		body, _, err := s.files.Read(ctx, args[0], args[1], *user)
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.Copy(a.stdout, body)
		return interrupted(ctx, err)
	})
	return cmd
}

func newFilesWrite(a *app, user *string) *cobra.Command {
	var mode string
	cmd := &cobra.Command{
		Use:   "write SANDBOX PATH",
		Short: "Write standard input to a file",
		Example: `  echo 'print(42)' | bothy files write sbx4f2a main.py
  bothy files write sbx4f2a run.sh --mode 755 < run.sh`,
		Args: usage(cobra.ExactArgs(2)),
	}
	cmd.Flags().StringVar(&mode, "mode", "", "its permissions, in octal (default those of the existing file, or 644)")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		o := bothy.WriteOptions{User: *user}
		if mode != "" {
			bits, err := strconv.ParseUint(mode, 8, 12)
			if err != nil {
				return usagef("Write it in octal, as in 644.", "%q is not a file's mode", mode)
			}
			o.Mode = uint32(bits)
		}
		f, err := s.files.Write(ctx, args[0], args[1], a.stdin, o)
		if err != nil {
			return interrupted(ctx, err)
		}
		return a.show(f, func(io.Writer) {})
	})
	return cmd
}

func newFilesMkdir(a *app, user *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mkdir SANDBOX PATH",
		Short: "Create a folder, and those above it",
		Args:  usage(cobra.ExactArgs(2)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		f, err := s.files.Mkdir(ctx, args[0], args[1], *user)
		if err != nil {
			return err
		}
		return a.show(f, func(io.Writer) {})
	})
	return cmd
}

func newFilesMove(a *app, user *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mv SANDBOX FROM TO",
		Short: "Move or rename a file or folder",
		Args:  usage(cobra.ExactArgs(3)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		f, err := s.files.Move(ctx, args[0], args[1], args[2], *user)
		if err != nil {
			return err
		}
		return a.show(f, func(io.Writer) {})
	})
	return cmd
}

func newFilesRemove(a *app, user *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm SANDBOX PATH…",
		Short: "Delete files, and folders with everything in them",
		Args:  usage(cobra.MinimumNArgs(2)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		for _, path := range args[1:] {
			if err := s.files.Remove(ctx, args[0], path, *user); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

func newFilesWatch(a *app, user *string) *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "watch SANDBOX [PATH]",
		Short: "Show what changes in a folder, until interrupted",
		Args:  usage(cobra.RangeArgs(1, 2)),
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "also in the folders below")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		err := s.files.Watch(ctx, args[0], append(args, ".")[1], *user, recursive, func(e bothy.FileEvent) error {
			if a.json {
				return a.printJSON(e)
			}
			_, err := fmt.Fprintf(a.stdout, "%-8s  %s\n", e.Type, strings.Map(printable, e.Path))
			return err
		})
		return followed(ctx, err)
	})
	return cmd
}
