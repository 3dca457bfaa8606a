package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

type listFlags struct {
	quiet, all bool
	states     []string
	labels     []string
	name       string
	limit      int
	cursor     string
}

func newList(a *app) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sandboxes",
		Long:    `List sandboxes, newest first. Ended ones are shown with --all.`,
		Example: `  bothy ls
  bothy ls --state paused -l run=17
  bothy rm $(bothy ls -q)`,
		Args: usage(cobra.NoArgs),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print ids only")
	flags.BoolVarP(&f.all, "all", "a", false, "show sandboxes that have ended, too")
	flags.StringSliceVar(&f.states, "state", nil, "show only sandboxes in this `state` (repeatable)")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "show only sandboxes with this metadata, `KEY=VALUE` (repeatable)")
	flags.StringVar(&f.name, "name", "", "show only sandboxes of this `name`")
	flags.IntVar(&f.limit, "limit", 0, "with --json, the `size` of the page")
	flags.StringVar(&f.cursor, "cursor", "", "with --json, the page to print: the `next_cursor` of the page before")
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		filter, err := f.filter()
		if err != nil {
			return err
		}
		return a.list(ctx, s, filter, f.quiet)
	})
	return cmd
}

func (f *listFlags) filter() (bothy.SandboxFilter, error) {
	filter := bothy.SandboxFilter{Name: f.name, Limit: f.limit, Cursor: f.cursor}
	for _, state := range f.states {
		filter.States = append(filter.States, bothy.State(state))
	}
	if len(f.states) == 0 && !f.all {
		filter.States = bothy.LiveStates
	}
	var err error
	filter.Metadata, err = keyValues("-l", f.labels)
	return filter, err
}

// list prints one page with --json, as the API does, and all pages otherwise.
func (a *app) list(ctx context.Context, s *session, filter bothy.SandboxFilter, quiet bool) error {
	if a.json {
		page, err := s.sandboxes.List(ctx, filter)
		if err != nil {
			return err
		}
		return a.show(page, nil)
	}
	all, err := allSandboxes(ctx, s, filter)
	if err != nil {
		return err
	}
	if quiet {
		for _, sandbox := range all {
			fmt.Fprintln(a.stdout, sandbox.ID)
		}
		return nil
	}
	printSandboxes(a.stdout, all)
	return nil
}

// allSandboxes reads page after page.
func allSandboxes(ctx context.Context, s *session, filter bothy.SandboxFilter) ([]*bothy.Sandbox, error) {
	var all []*bothy.Sandbox
	for {
		page, err := s.sandboxes.List(ctx, filter)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.NextCursor == "" || page.NextCursor == filter.Cursor {
			return all, nil
		}
		filter.Cursor = page.NextCursor
	}
}

func printSandboxes(w io.Writer, list []*bothy.Sandbox) {
	header := []string{"ID", "NAME", "STATE", "TEMPLATE", "CPU", "MEMORY", "NETWORK", "AGE", "ENDS IN"}
	rows := make([][]string, len(list))
	for i, s := range list {
		ends := until(s.ExpiresAt)
		if s.State.Ended() {
			ends = "-"
		}
		rows[i] = []string{
			s.ID, orDash(s.Name), string(s.State), orDash(s.Template), strconv.FormatFloat(s.CPU, 'g', -1, 64),
			size(int64(s.MemoryMB) << 20), networkMode(s.Network), age(s.CreatedAt), ends,
		}
	}
	table(w, header, rows)
}

// networkMode is the mode, with a star if an object says more.
func networkMode(n bothy.Network) string {
	mode := string(n.Mode)
	if mode == "" {
		mode = string(bothy.NetworkOff)
	}
	if !n.IsPlain() {
		mode += "*"
	}
	return mode
}
