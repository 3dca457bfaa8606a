package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newSnapshotExport(a *app) *cobra.Command {
	var passphraseFile string
	cmd := &cobra.Command{
		Use:   "export SNAPSHOT FILE",
		Short: "Write a snapshot into a file, - for standard output",
		Long: `Write a snapshot into one compressed file, which another server can import.
It holds the sandbox's memory and files, including all secrets in them: encrypt
it with a passphrase if it leaves this host. The server signs it with the key
that "bothy snapshot key" shows.`,
		Args: usage(cobra.ExactArgs(2)),
	}
	passphraseFlag(cmd, &passphraseFile)
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		passphrase, err := readPassphrase(passphraseFile)
		if err != nil {
			return err
		}
		return a.exportSnapshot(ctx, s, args[0], args[1], passphrase)
	})
	return cmd
}

func (a *app) exportSnapshot(ctx context.Context, s *session, id, file, passphrase string) error {
	if file == "-" {
		return s.mover.ExportSnapshot(ctx, id, passphrase, a.stdout)
	}
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(s.mover.ExportSnapshot(ctx, id, passphrase, w)) }()
	bar := newProgress(a.stderr)
	defer bar.done()
	return writeAtomically(file, meter(r, bar, file, 0), &bothy.FileInfo{Mode: "600"})
}

func newSnapshotImport(a *app) *cobra.Command {
	var name, passphraseFile string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Read a snapshot from a file, - for standard input, and print its id",
		Long: `Read a snapshot from a file that "bothy snapshot export" wrote, - for standard
input, and print its id. Memory and processes are kept if the file was signed by
this server, or by one whose key its settings trust (snapshots.trusted_keys).
From any other file only the sandbox's files are kept, and the command says so.`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&name, "name", "", "`name` of the snapshot (default its original name)")
	passphraseFlag(cmd, &passphraseFile)
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		passphrase, err := readPassphrase(passphraseFile)
		if err != nil {
			return err
		}
		snapshot, err := a.importSnapshot(ctx, s, args[0], name, passphrase)
		if err != nil {
			return err
		}
		return a.showSnapshot(snapshot, "")
	})
	return cmd
}

func newSnapshotKey(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Print the key with which other servers verify exports from this one",
		Long: `Print the public key of the server, with which it signs exports. A server that
has the key under snapshots.trusted_keys in its settings imports memory and
processes from here; from other archives it imports only the files.`,
		Args: usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		key, err := s.mover.ArchiveKey(ctx)
		if err != nil {
			return err
		}
		return a.show(key, func(w io.Writer) { fmt.Fprintln(w, key.Key) })
	})
	return cmd
}

func (a *app) importSnapshot(ctx context.Context, s *session, file, name, passphrase string) (*bothy.Snapshot, error) {
	if file == "-" {
		return s.mover.ImportSnapshot(ctx, name, passphrase, a.stdin)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, reason(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	bar := newProgress(a.stderr)
	defer bar.done()
	return s.mover.ImportSnapshot(ctx, name, passphrase, meter(f, bar, file, info.Size()))
}

func passphraseFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "passphrase-file", "", "`file` whose first line is the passphrase of the archive")
}

// readPassphrase reads the first line, so that no passphrase has to be in a command line, where
// others can see it.
func readPassphrase(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("cannot read the passphrase in %s: %w", file, reason(err))
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", usagef("Write the passphrase into its first line.", "there is no passphrase in %s", file)
	}
	return line, nil
}
