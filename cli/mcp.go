package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy/mcp"
)

func newMCP(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Speak the Model Context Protocol on stdin and stdout",
		Long: `Speak the Model Context Protocol on stdin and stdout, for clients that start
their servers as programs. The tools use the same server as the other commands.
Clients that support HTTP need no program: the server itself answers at
/api/sandboxes/mcp, to callers with a key.`,
		Example: `  claude mcp add bothy -- bothy mcp`,
		Args:    usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		server := mcp.New(mcp.Services{
			Sandboxes: s.sandboxes, Exec: s.exec, Code: s.code, Files: s.files, Snapshots: s.snapshots, Limits: s.limits,
			Templates: s.templates, Builder: s.builder, Capturer: s.capturer,
		}, a.version, log)
		err := mcp.ServeStdio(ctx, server)
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil // the client hung up
		}
		return err
	})
	return cmd
}
