package cli

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newLogs(a *app) *cobra.Command {
	var follow bool
	var from int64
	cmd := &cobra.Command{
		Use:   "logs SANDBOX [PID]",
		Short: "Show the output of a background command",
		Long: `Show the output of a command started with exec -d, by default the last one. The
sandbox buffers a limited amount of output; older output is dropped.

With --json each piece of output is printed as the API sent it, one a line.`,
		Example: `  bothy logs sbx4f2a
  bothy logs -f sbx4f2a 214`,
		Args: usage(cobra.RangeArgs(1, 2)),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow the command to its end, and exit with its code")
	cmd.Flags().Int64Var(&from, "from", 0, "`byte` of the output to start at")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		process, err := pickProcess(ctx, s, args)
		if err != nil {
			return err
		}
		return a.logs(ctx, s, args[0], process, from, follow)
	})
	return cmd
}

// pickProcess finds the process that was named, or the last one.
func pickProcess(ctx context.Context, s *session, args []string) (bothy.ProcessInfo, error) {
	list, err := s.exec.Processes(ctx, args[0])
	if err != nil {
		return bothy.ProcessInfo{}, err
	}
	if len(args) == 1 && len(list) > 0 {
		return list[len(list)-1], nil
	}
	if len(args) == 1 {
		return bothy.ProcessInfo{}, bothy.Errorf(bothy.CodeProcessNotFound, "no command was started in sandbox %s", args[0]).
			WithHint("`bothy exec -d` starts one.")
	}
	pid, err := strconv.Atoi(args[1])
	if err != nil {
		return bothy.ProcessInfo{}, usagef("`bothy ps` lists the pids.", "%q is not a pid", args[1])
	}
	for _, p := range list {
		if p.PID == pid {
			return p, nil
		}
	}
	return bothy.ProcessInfo{}, bothy.Errorf(bothy.CodeProcessNotFound, "no process %d in sandbox %s", pid, args[0]).
		WithHint("`bothy ps` lists the pids.")
}

var errSeenEnough = errors.New("seen enough")

// logs prints output from a byte offset on: to the end of the process with follow, and otherwise
// what exists at the time.
func (a *app) logs(ctx context.Context, s *session, id string, p bothy.ProcessInfo, from int64, follow bool) error {
	if !follow && from >= p.OutputEnd {
		return nil
	}
	var final bothy.ExecEvent
	printEvent := a.printEvent(&final)
	if a.json {
		printEvent = func(e bothy.ExecEvent) error { return a.printJSON(e) }
	}
	err := s.exec.Output(ctx, id, p.PID, from, func(e bothy.ExecEvent) error {
		if err := printEvent(e); err != nil {
			return err
		}
		data, err := e.Bytes()
		if err == nil && !follow && e.Offset+int64(len(data)) >= p.OutputEnd {
			return errSeenEnough
		}
		return err
	})
	if errors.Is(err, errSeenEnough) || (err == nil && !follow) {
		return nil
	}
	if err != nil {
		return interrupted(ctx, err)
	}
	return a.ended(final.ExitCode, final.TimedOut, final.OOMKilled, final.Hint)
}
