package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newTop(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "top",
		Aliases: []string{"stats"},
		Short:   "Show what the running sandboxes use, the busiest first, until Ctrl-C",
		Long: `Show what the running sandboxes use, the busiest first, until Ctrl-C. They are
measured every ten seconds. CPU is in per cent of one processor. If the output
is not a terminal, or with --json, it is printed once.`,
		Args: usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		if to, drawn := a.screen().(screen); drawn && !a.json {
			return a.watch(ctx, to, func(w io.Writer) error { return top(ctx, s, w) })
		}
		if !a.json {
			return top(ctx, s, a.stdout)
		}
		list, err := s.metrics.LatestMetrics(ctx)
		if err != nil {
			return err
		}
		return a.show(map[string]any{"items": list}, nil)
	})
	return cmd
}

func top(ctx context.Context, s *session, w io.Writer) error {
	list, err := s.metrics.LatestMetrics(ctx)
	if err != nil {
		return err
	}
	all, err := allSandboxes(ctx, s, bothy.SandboxFilter{States: bothy.LiveStates})
	if err != nil {
		return err
	}
	names, measured := map[string]string{}, map[string]bool{}
	for _, m := range list {
		measured[m.SandboxID] = true
	}
	for _, sandbox := range all {
		names[sandbox.ID] = sandbox.Name
		if sandbox.State == bothy.StateRunning && !measured[sandbox.ID] {
			list = append(list, &bothy.SandboxMetrics{SandboxID: sandbox.ID})
		}
	}
	printTop(w, list, names)
	return nil
}

func printTop(w io.Writer, list []*bothy.SandboxMetrics, names map[string]string) {
	cpu := func(m *bothy.SandboxMetrics) float64 {
		if m.CPUUsed == nil {
			return 0
		}
		return *m.CPUUsed
	}
	slices.SortStableFunc(list, func(a, b *bothy.SandboxMetrics) int {
		return cmp.Or(cmp.Compare(cpu(b), cpu(a)), cmp.Compare(b.MemoryBytes, a.MemoryBytes), cmp.Compare(a.SandboxID, b.SandboxID))
	})
	rows := make([][]string, len(list))
	for i, m := range list {
		if m.Time.IsZero() { // too new to have been measured
			rows[i] = []string{m.SandboxID, orDash(names[m.SandboxID]), "-", "-", "-", "-", "-", "-", "-"}
			continue
		}
		used := "-"
		if m.CPUUsed != nil {
			used = fmt.Sprintf("%.0f%%", 100**m.CPUUsed)
		}
		rows[i] = []string{
			m.SandboxID, orDash(names[m.SandboxID]), used, ofLimit(m.MemoryBytes, m.MemoryLimitBytes), share(m.MemoryBytes, m.MemoryLimitBytes),
			share(m.DiskBytes, m.DiskLimitBytes), strconv.Itoa(m.Processes), size(m.EgressBytes), size(m.IngressBytes),
		}
	}
	table(w, []string{"ID", "NAME", "CPU", "MEMORY", "MEM", "DISK", "PROCESSES", "SENT", "RECEIVED"}, rows)
}

// share is a part of a whole in per cent.
func share(n, of int64) string {
	if of <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(n)/float64(of))
}
