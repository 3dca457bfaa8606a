package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

type listFlags struct {
	quiet, all bool
	watch      bool
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
		Aliases: []string{"list"}, SuggestFor: []string{"containers", "machines"},
		Short: "List sandboxes",
		Long:  `List sandboxes, newest first. Ended ones are shown with --all.`,
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
	flags.BoolVarP(&f.watch, "watch", "w", false, "print the list anew every two seconds, until Ctrl-C")
	flags.IntVar(&f.limit, "limit", 0, "with --json, the `size` of the page")
	flags.StringVar(&f.cursor, "cursor", "", "with --json, the page to print: the `next_cursor` of the page before")
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		filter, err := f.filter()
		if err != nil {
			return err
		}
		if f.watch {
			return a.watchList(ctx, s, filter, f.quiet)
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

// watchInterval is how often a list that is watched is read.
const watchInterval = 2 * time.Second

// watchList prints the list again and again until ctx ends; on a terminal in its place.
func (a *app) watchList(ctx context.Context, s *session, filter bothy.SandboxFilter, quiet bool) error {
	if to, drawn := a.screen().(screen); drawn && !a.json && !quiet {
		return a.watch(ctx, to, func(w io.Writer) error {
			all, err := allSandboxes(ctx, s, filter)
			printSandboxes(w, all)
			return err
		})
	}
	return again(ctx, func() error { return a.list(ctx, s, filter, quiet) })
}

// watch draws a page in its place again and again until ctx ends.
func (a *app) watch(ctx context.Context, to screen, draw func(io.Writer) error) error {
	return again(ctx, func() error {
		var page bytes.Buffer
		to.Writer = &page
		if err := draw(to); err != nil {
			return err
		}
		// Each line is cleared to its end, and then what is below: so nothing flickers.
		_, err := fmt.Fprint(a.stdout, "\x1b[H"+strings.ReplaceAll(page.String(), "\n", "\x1b[K\n")+"\x1b[J")
		return err
	})
}

// again does something every two seconds until it fails or ctx ends.
func again(ctx context.Context, do func() error) error {
	for {
		err := do()
		switch {
		case ctx.Err() != nil: // Ctrl-C, which may have ended the last call
			return nil
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchInterval):
		}
	}
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
	printSandboxes(a.screen(), all)
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
