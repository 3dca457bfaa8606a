package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func newCopy(a *app) *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:   "cp SOURCE… DESTINATION",
		Short: "Copy files and folders into and out of a sandbox",
		Long: `Copy files and folders. A path in a sandbox is written SANDBOX:PATH; - is
standard input or standard output. A destination that is a folder, or ends in
a slash, receives the sources inside it; SOURCE/. means what is in a folder.

Permissions and modification times are kept. A symbolic link that leads out of
the destination on this host is not copied.`,
		Example: `  bothy cp main.py sbx4f2a:/workspace/
  bothy cp 'data/*.csv' sbx4f2a:/workspace/data/
  bothy cp sbx4f2a:/workspace/out ./out
  bothy cp sbx4f2a:/etc/os-release -
  bothy cp sbx4f2a:/workspace/src sbx77c0:/workspace/`,
		Args: usage(cobra.MinimumNArgs(2)),
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "`user` that reads and owns the files (default user)")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		return a.copy(ctx, s, args[:len(args)-1], args[len(args)-1], user)
	})
	return cmd
}

func (a *app) copy(ctx context.Context, s *session, sources []string, to, user string) error {
	src, remote, err := splitSources(sources)
	if err != nil {
		return err
	}
	dst := parsePlace(to)
	for _, id := range []*string{&remote, &dst.sandbox} {
		if *id, err = s.sandboxNamed(ctx, *id); err != nil {
			return err
		}
	}
	switch {
	case remote == "" && dst.sandbox == "":
		return usagef("Write a path in a sandbox as SANDBOX:PATH.", "neither side is in a sandbox")
	case remote == "":
		up := &uploader{app: a, session: s, id: dst.sandbox, user: user}
		return interrupted(ctx, up.put(ctx, src, dst.path))
	case dst.sandbox == "":
		down := &downloader{app: a, session: s, id: remote, user: user}
		return interrupted(ctx, down.get(ctx, src, dst.path))
	}
	return interrupted(ctx, a.copyAcross(ctx, s, remote, src, dst, user))
}

// place is one side of a copy. Without a sandbox it is on this host.
type place struct{ sandbox, path string }

// parsePlace reads SANDBOX:PATH. A name with a slash before the colon, such as
// ./a:b, is a file of this host.
func parsePlace(text string) place {
	id, path, ok := strings.Cut(text, ":")
	if !ok || id == "" || strings.ContainsAny(id, "/.") {
		return place{path: text}
	}
	if path == "" {
		path = "."
	}
	return place{sandbox: id, path: path}
}

// splitSources checks that all sources are on the same side, and expands
// patterns on this host.
func splitSources(sources []string) (paths []string, sandbox string, err error) {
	for i, text := range sources {
		p := parsePlace(text)
		if i > 0 && p.sandbox != sandbox {
			return nil, "", usagef("Copy them one by one.", "the sources are in different places")
		}
		sandbox = p.sandbox
		if sandbox != "" {
			paths = append(paths, p.path)
			continue
		}
		found, err := expand(p.path)
		if err != nil {
			return nil, "", err
		}
		paths = append(paths, found...)
	}
	return paths, sandbox, nil
}

// expand returns the files that a pattern matches; a name that exists is not a
// pattern.
func expand(pattern string) ([]string, error) {
	if _, err := os.Lstat(pattern); err == nil || !strings.ContainsAny(pattern, "*?[") {
		return []string{pattern}, nil
	}
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		return nil, usagef("Look at the pattern with ls.", "no file matches %q", pattern)
	}
	return found, nil
}
