package cli

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

// Wherever a command takes the id of a sandbox, a snapshot or a key, it takes a name too. Which of
// its arguments these are is read from its usage line.

var anID = regexp.MustCompile(`^(sbx|snp)[0-9a-z]{16}$`)

// named replaces names in the arguments of a command by ids.
func (s *session) named(ctx context.Context, cmd *cobra.Command, args []string) ([]string, error) {
	kinds, repeated := placeholders(cmd.Use)
	args = slices.Clone(args)
	for i, arg := range args {
		at := i
		if repeated {
			at = min(at, len(kinds)-1)
		}
		if at >= len(kinds) || anID.MatchString(arg) {
			continue
		}
		var err error
		switch kinds[at] {
		case "SANDBOX":
			args[i], err = s.sandboxNamed(ctx, arg)
		case "SNAPSHOT":
			of := ""
			if at > 0 && kinds[0] == "SANDBOX" {
				of = args[0]
			}
			args[i], err = s.snapshotNamed(ctx, arg, of)
		case "SANDBOX|SNAPSHOT":
			if args[i], err = s.sandboxNamed(ctx, arg); err == nil && args[i] == arg {
				args[i], err = s.snapshotNamed(ctx, arg, "")
			}
		case "TOKEN":
			args[i], err = s.keyNamed(ctx, arg)
		}
		if err != nil {
			return nil, err
		}
	}
	return args, nil
}

// placeholders returns what the arguments of a command are, and whether the last may be repeated.
func placeholders(use string) (kinds []string, repeated bool) {
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(word, "[flags]") || strings.HasPrefix(strings.TrimPrefix(word, "["), "--") {
			break
		}
		repeated = strings.HasSuffix(word, "…")
		kinds = append(kinds, strings.Trim(word, "[]…"))
	}
	return kinds, repeated
}

// sandboxNamed returns the id of the sandbox of this name: one that lives, if there is one. A word that is
// no name is returned as it is, for the server to judge.
func (s *session) sandboxNamed(ctx context.Context, name string) (string, error) {
	if s.sandboxes == nil || name == "" || anID.MatchString(name) {
		return name, nil
	}
	for _, states := range [][]bothy.State{bothy.LiveStates, nil} {
		page, err := s.sandboxes.List(ctx, bothy.SandboxFilter{Name: name, States: states, Limit: mostNamesakes + 1})
		if err != nil {
			return "", err
		}
		if len(page.Items) > 0 {
			return onlyOne("sandboxes", name, sandboxIDs(page.Items))
		}
	}
	return name, nil
}

// snapshotNamed is sandboxNamed for snapshots, of one sandbox or of all.
func (s *session) snapshotNamed(ctx context.Context, name, sandbox string) (string, error) {
	page, err := s.snapshots.Snapshots(ctx, bothy.SnapshotFilter{Name: name, SandboxID: sandbox, Limit: mostNamesakes + 1})
	if err != nil || len(page.Items) == 0 {
		return name, err
	}
	ids := make([]string, len(page.Items))
	for i, n := range page.Items {
		ids[i] = n.ID
	}
	return onlyOne("snapshots", name, ids)
}

// keyNamed is sandboxNamed for keys.
func (s *session) keyNamed(ctx context.Context, name string) (string, error) {
	tokens, err := s.tokens.Tokens(ctx)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, t := range tokens {
		switch name {
		case t.ID:
			return name, nil
		case t.Name:
			ids = append(ids, t.ID)
		}
	}
	if len(ids) == 0 {
		return name, nil
	}
	return onlyOne("keys", name, ids)
}

// mostNamesakes is how many ids an error lists.
const mostNamesakes = 10

func onlyOne(what, name string, ids []string) (string, error) {
	if len(ids) == 1 {
		return ids[0], nil
	}
	shown := strings.Join(ids[:min(len(ids), mostNamesakes)], ", ")
	if len(ids) > mostNamesakes {
		shown += " and others"
	}
	return "", usagef("Use an id.", "several %s have the name %q: %s", what, name, shown)
}
