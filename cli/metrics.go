package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newMetrics(a *app) *cobra.Command {
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "metrics [SANDBOX]",
		Short: "Show what a sandbox, or all sandboxes, use now or have used",
		Long: `Show what a sandbox uses now or, with --since, the measurements taken every ten
seconds. Without a sandbox, show the latest measurement of each running one. At
most the last half hour is kept, since the sandbox was last started or resumed.`,
		Args: usage(cobra.MaximumNArgs(1)),
	}
	timeVar(cmd.Flags(), &since, "since", 0, "show earlier measurements, a `time` back as in 10m")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		if len(args) == 0 {
			if since > 0 {
				return usageError(cmd, errors.New("--since is for one sandbox: name it"))
			}
			list, err := s.metrics.LatestMetrics(ctx)
			if err != nil {
				return err
			}
			return a.show(map[string]any{"items": list}, func(w io.Writer) { printLatest(w, list) })
		}
		if since > 0 {
			list, err := s.metrics.MetricsHistory(ctx, args[0], time.Now().Add(-since), time.Time{})
			if err != nil {
				return err
			}
			return a.show(map[string]any{"items": list}, func(w io.Writer) { printHistory(w, list) })
		}
		m, err := s.metrics.Metrics(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(m, func(w io.Writer) { printMetrics(w, m) })
	})
	return cmd
}

func printMetrics(w io.Writer, m *bothy.Metrics) {
	idle := ""
	if m.IdleForSeconds > 0 {
		idle = span(time.Duration(m.IdleForSeconds * float64(time.Second)))
	}
	fields(w,
		"cpu", fmt.Sprintf("%.2f s used, %s allowed", m.CPUSeconds, strconv.FormatFloat(m.CPUCount, 'g', -1, 64)),
		"memory", ofLimit(m.MemoryBytes, m.MemoryLimitBytes),
		"disk", ofLimit(m.DiskBytes, m.DiskLimitBytes),
		"processes", strconv.Itoa(m.Processes),
		"sent", size(m.EgressBytes),
		"received", size(m.IngressBytes),
		"held awake by", strings.Join(m.HeldAwakeBy, ", "),
		"idle for", idle,
	)
}

func printLatest(w io.Writer, list []*bothy.SandboxMetrics) {
	rows := make([][]string, len(list))
	for i, m := range list {
		cpu := "-"
		if m.CPUUsed != nil {
			cpu = fmt.Sprintf("%.2f", *m.CPUUsed)
		}
		rows[i] = []string{
			m.SandboxID, cpu, ofLimit(m.MemoryBytes, m.MemoryLimitBytes), size(m.DiskBytes), strconv.Itoa(m.Processes), size(m.EgressBytes), size(m.IngressBytes),
		}
	}
	table(w, []string{"SANDBOX", "CPUS", "MEMORY", "DISK", "PROCESSES", "SENT", "RECEIVED"}, rows)
}

func printHistory(w io.Writer, list []*bothy.Metrics) {
	rows := make([][]string, len(list))
	for i, m := range list {
		rows[i] = []string{
			m.Time.Local().Format(time.TimeOnly), fmt.Sprintf("%.2f s", m.CPUSeconds), size(m.MemoryBytes), size(m.DiskBytes),
			strconv.Itoa(m.Processes), size(m.EgressBytes), size(m.IngressBytes),
		}
	}
	table(w, []string{"TIME", "CPU", "MEMORY", "DISK", "PROCESSES", "SENT", "RECEIVED"}, rows)
}

func ofLimit(n, limit int64) string {
	return fmt.Sprintf("%s of %s", size(n), size(limit))
}
