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

func newMetrics(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics SANDBOX",
		Short: "Show what a sandbox uses now",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
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

func ofLimit(n, limit int64) string {
	return fmt.Sprintf("%s of %s", size(n), size(limit))
}
