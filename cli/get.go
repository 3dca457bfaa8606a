package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newGet(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get SANDBOX",
		Aliases: []string{"inspect", "status"},
		Short:   "Show one sandbox, in any state",
		Example: `  bothy get sbx4f2a` + "\n" + `  bothy get sbx4f2a --json`,
		Args:    usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		sandbox, err := s.sandboxes.Get(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(sandbox, func(w io.Writer) { printSandbox(w, sandbox) })
	})
	return cmd
}

func printSandbox(w io.Writer, s *bothy.Sandbox) {
	fields(w,
		"id", s.ID,
		"name", s.Name,
		"state", string(s.State),
		"health", healthText(s.Health),
		"ended", endedText(s.Ended),
		"template", s.Template,
		"engine", engineText(s),
		"kernel", s.Kernel,
		"cpu", strconv.FormatFloat(s.CPU, 'g', -1, 64),
		"memory", size(int64(s.MemoryMB)<<20),
		"disk", size(int64(s.DiskMB)<<20),
		"network", networkText(s.Network),
		"created", stamp(&s.CreatedAt),
		"started", stamp(s.StartedAt),
		"expires", stamp(s.ExpiresAt),
		"on time-out", string(s.OnTimeout),
		"when idle", idleText(s),
		"on host loss", string(s.OnHostLoss),
		"checkpoints", checkpointText(s),
		"lost its host", lossText(s.HostLoss),
		"host labels", pairs(s.HostLabels),
		"env", pairs(s.Env),
		"metadata", pairs(s.Metadata),
		"parent", parentText(s),
		"parent snapshot", s.ParentSnapshotID,
	)
}

func healthText(h *bothy.Health) string {
	if h == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", strings.ReplaceAll(string(h.Status), "_", " "), h.Detail)
}

func parentText(s *bothy.Sandbox) string {
	if s.ForkedAt == nil {
		return s.ParentSandboxID
	}
	return fmt.Sprintf("%s, as it was at %s", s.ParentSandboxID, stamp(s.ForkedAt))
}

func engineText(s *bothy.Sandbox) string {
	switch s.Acceleration {
	case "":
		return s.Engine
	case bothy.AccelerationKVM:
		return s.Engine + " under KVM"
	}
	return fmt.Sprintf("%s, %s", s.Engine, s.Acceleration)
}

func idleText(s *bothy.Sandbox) string {
	if s.IdleSeconds == 0 {
		return ""
	}
	return fmt.Sprintf("paused after %ds", s.IdleSeconds)
}

func checkpointText(s *bothy.Sandbox) string {
	if s.CheckpointSeconds == 0 {
		return ""
	}
	if s.CheckpointAt == nil {
		return fmt.Sprintf("every %ds", s.CheckpointSeconds)
	}
	return fmt.Sprintf("every %ds, the last at %s", s.CheckpointSeconds, stamp(s.CheckpointAt))
}

func lossText(l *bothy.HostLoss) string {
	if l == nil {
		return ""
	}
	text := fmt.Sprintf("at %s, paused at %s, which was %ds old", stamp(&l.At), l.SnapshotID, l.AgeSeconds)
	if l.Problem != "" {
		text += ", not resumed: " + l.Problem
	}
	return text
}

func endedText(e *bothy.Ended) string {
	if e == nil {
		return ""
	}
	return fmt.Sprintf("%s at %s: %s", e.Reason, stamp(&e.At), e.Detail)
}
