package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newHost(a *app) *cobra.Command {
	return group("host", "See and manage the hosts that share a database", newHostList(a), newHostAdd(a), newHostJoin(a),
		newHostState(a, "cordon", bothy.HostCordoned, "Give hosts no new sandboxes; those that they have continue"),
		newHostState(a, "uncordon", bothy.HostUp, "Let cordoned and draining hosts take new sandboxes again"),
		newHostDrain(a),
		newHostRemove(a))
}

func newHostList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List hosts, what they do and how much they have",
		Args:  usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		all, err := s.hosts.Hosts(ctx)
		if err != nil {
			return err
		}
		return a.show(all, func(w io.Writer) {
			rows := make([][]string, len(all))
			for i, h := range all {
				rows[i] = hostRow(h)
			}
			table(w, []string{"HOST", "STATE", "ADDRESS", "SANDBOXES", "RUNNING", "CPUS", "FREE MEMORY", "LEASE", "PROCESSOR", "LABELS"}, rows)
			for _, h := range all {
				if h.ProcessorProblem != "" {
					fmt.Fprintf(a.stderr, "bothy: host %s: %s\n", h.Name, h.ProcessorProblem)
				}
				if why := notUp(h); why != "" {
					fmt.Fprintf(a.stderr, "bothy: host %s: %s\n", h.Name, why)
				}
			}
		})
	})
	return cmd
}

// notUp says why a host does not run, and what to do, or "".
func notUp(h bothy.ClusterHost) string {
	dead, remove := h.State == bothy.HostDead, "bothy host rm "+h.Name
	switch {
	case h.StartProblem != "":
		why := fmt.Sprintf("its server did not start: %s. Correct that and start it", strings.TrimSuffix(h.StartProblem, "."))
		if dead {
			why += ", or remove the host: " + remove
		}
		return why
	case dead:
		return "it did not renew its lease, and was given up. Start its server, or remove the host if it is lost: " + remove
	}
	return ""
}

func hostRow(h bothy.ClusterHost) []string {
	name := h.Name
	if h.Self {
		name += " (answers)"
	}
	lease := fmt.Sprintf("%.0f s", h.LeaseSeconds)
	if h.LeaseSeconds <= 0 {
		lease = "ended"
	}
	// Nothing is known until a host renews its lease for the first time, nor after it was given up.
	running, cpus, memory := "-", "-", "-"
	if h.MemoryBytes > 0 && h.State != bothy.HostDead {
		running, cpus, memory = strconv.Itoa(h.Live), strconv.Itoa(h.CPUs), fmt.Sprintf("%d of %d MB", h.FreeMemoryBytes>>20, h.MemoryBytes>>20)
	}
	return []string{
		name, string(h.State), h.Address, strconv.Itoa(h.Sandboxes), running, cpus, memory, lease,
		processorWord(h.Processor), pairs(h.Labels),
	}
}

// processorWord is the level of a host's processor, and what sandboxes see of it where that is
// less.
func processorWord(p *bothy.HostProcessor) string {
	switch {
	case p == nil:
		return "-"
	case p.CPULevel != bothy.CPUHost:
		return p.Level + ", shown as " + p.CPULevel
	}
	return p.Level
}

func newHostAdd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Print the command with which another host joins",
		Long: `Print the command to run on a new host. Its token is valid once, for an hour. Anyone
who has it gets the key of all secrets, so transfer it over a channel that you trust.`,
		Args: usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		i, err := s.hosts.InviteHost(ctx)
		if err != nil {
			return err
		}
		return a.show(i, func(w io.Writer) { fmt.Fprintln(w, i.Command) })
	})
	return cmd
}

func newHostState(a *app, verb string, state bothy.HostState, short string) *cobra.Command {
	return newForEach(a, verb+" HOST…", short, "", func(ctx context.Context, s *session, name string) error {
		_, err := s.hosts.UpdateHost(ctx, name, bothy.HostUpdate{State: state})
		return err
	})
}

func newHostDrain(a *app) *cobra.Command {
	var self bool
	var deadline time.Duration
	cmd := &cobra.Command{
		Use:   "drain [HOST]",
		Short: "Move all sandboxes of a host to others",
		Long: `Give a host no new sandboxes, move those that it has to other hosts, with memory,
processes and files, and wait until the last has left. Requests to a sandbox wait while
it moves. What cannot be moved keeps running, and is tried again; at the deadline the
host is left cordoned, and the exit code is 1.

--self drains the host that answers, until its server is started again: it is for hooks
that run before a server is stopped. A host that is named stays as it is until uncordon.`,
		Example: "  bothy host drain two\n  bothy host drain --self --deadline 100s",
		Args:    usage(cobra.MaximumNArgs(1)),
	}
	cmd.Flags().BoolVar(&self, "self", false, "drain the host that answers, until its server is started again")
	timeVar(cmd.Flags(), &deadline, "deadline", 0, "give up after this time, and leave what has not moved")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		if self == (len(args) == 1) {
			return usageError(cmd, errors.New("name one host, or give --self"))
		}
		if deadline < 0 {
			return usageError(cmd, fmt.Errorf("--deadline %s is less than 0", deadline))
		}
		if self && a.url == "" && os.Getenv("BOTHY_URL") == "" {
			own, err := a.connectToSelf()
			if err != nil {
				return err
			}
			if own != nil {
				s = own
			}
		}
		return a.drainHost(ctx, s, args, deadline)
	})
	return cmd
}

// drainLook is how often to check the progress of a drain.
const drainLook = 500 * time.Millisecond

func (a *app) drainHost(ctx context.Context, s *session, args []string, deadline time.Duration) error {
	all, err := s.hosts.Hosts(ctx)
	if err != nil {
		return err
	}
	is := func(h bothy.ClusterHost) bool { return len(args) == 0 && h.Self || len(args) == 1 && h.Name == args[0] }
	i := slices.IndexFunc(all, is)
	if i < 0 {
		return bothy.Errorf(bothy.CodeNotFound, "there is no host %q", strings.Join(args, " ")).WithHint("`bothy host ls` lists them.")
	}
	name := all[i].Name
	is = func(h bothy.ClusterHost) bool { return h.Name == name }
	if all[i].State == bothy.HostDead {
		return bothy.Errorf(bothy.CodeConflict, "the host %s is dead: its sandboxes were given up already, or wait for it", name).
			WithHint("`bothy host rm %s` forgets it once it has no sandboxes.", name)
	}
	if _, err := s.hosts.UpdateHost(ctx, name, bothy.HostUpdate{State: bothy.HostDraining, UntilRestart: len(args) == 0}); err != nil {
		return err
	}
	var late <-chan time.Time
	if deadline > 0 {
		late = time.After(deadline)
	}
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	said := ""
	for begun := time.Now(); ; {
		if all, err = s.hosts.Hosts(ctx); err != nil {
			return err
		}
		if i = slices.IndexFunc(all, is); i < 0 || all[i].State != bothy.HostDraining {
			return bothy.Errorf(bothy.CodeConflict, "the host %s is not being drained any more", name).WithHint("Somebody else has changed that: `bothy host ls`.")
		}
		h := all[i]
		if h.Sandboxes == 0 {
			return a.show(h, func(w io.Writer) {
				fmt.Fprintf(w, "%s has no sandboxes any more, after %s\n", name, time.Since(begun).Round(time.Second))
			})
		}
		if h.MoveProblem != "" && h.MoveProblem != said {
			said = h.MoveProblem
			fmt.Fprintf(a.stderr, "bothy: %s still on %s; one could not be moved yet: %s\n", sandboxesAre(h.Sandboxes), name, said)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			continue
		case <-late:
		}
		if len(args) == 1 {
			if _, err := s.hosts.UpdateHost(ctx, name, bothy.HostUpdate{State: bothy.HostCordoned}); err != nil {
				return err
			}
		}
		e := bothy.Errorf(bothy.CodeConflict, "%s still on the host %s after %s", sandboxesAre(h.Sandboxes), name, deadline)
		if h.MoveProblem != "" {
			e.Detail += "; the last that could not be moved: " + h.MoveProblem
		}
		return e.WithHint("They continue there. Drain it again with more time, or see what the other hosts have room for: `bothy host ls`.")
	}
}

func sandboxesAre(n int) string {
	if n == 1 {
		return "1 sandbox is"
	}
	return fmt.Sprintf("%d sandboxes are", n)
}

func newMove(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move SANDBOX [HOST]",
		Short: "Move a sandbox to another host",
		Long: `Move a running or paused sandbox to another host, with its memory, processes, files and
snapshots. Without a host it goes to the one with the least load. Requests to it wait
meanwhile. If the move fails, the sandbox stays where it is. This needs the operator's
key, which can move the sandboxes of all projects.`,
		Example: "  bothy move sbx1c9w2k4q8m3n5p7r two",
		Args:    usage(cobra.RangeArgs(1, 2)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		var req bothy.SandboxMove
		if len(args) == 2 {
			req.Host = args[1]
		}
		m, err := s.hosts.MoveSandbox(ctx, args[0], req)
		if err != nil {
			return err
		}
		return a.show(m, func(w io.Writer) {
			frozen := ""
			if m.StillMS > 0 { // a paused one is not frozen
				frozen = fmt.Sprintf("; it was frozen for %d ms", m.StillMS)
			}
			fmt.Fprintf(w, "%s is on %s now%s\n", m.SandboxID, m.To, frozen)
		})
	})
	return cmd
}

func newHostRemove(a *app) *cobra.Command {
	return newForEach(a, "rm HOST…", "Remove lost hosts that have no sandboxes", "", func(ctx context.Context, s *session, name string) error {
		return s.hosts.RemoveHost(ctx, name)
	})
}
