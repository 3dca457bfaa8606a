package cli

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newProcesses(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps SANDBOX",
		Short: "List the commands that were started in a sandbox",
		Long: `List the commands that were started through the API, and are running or have
ended with their output still held.`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		list, err := s.exec.Processes(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(list, func(w io.Writer) { printProcesses(w, list) })
	})
	return cmd
}

func printProcesses(w io.Writer, list []bothy.ProcessInfo) {
	rows := make([][]string, len(list))
	for i, p := range list {
		rows[i] = []string{strconv.Itoa(p.PID), orDash(p.User), processState(p), size(p.OutputEnd), commandLine(p.Command)}
	}
	table(w, []string{"PID", "USER", "STATE", "OUTPUT", "COMMAND"}, rows)
}

func processState(p bothy.ProcessInfo) string {
	switch {
	case p.Running:
		return "running"
	case p.OOMKilled:
		return "out of memory"
	case p.TimedOut:
		return "timed out"
	case p.ExitCode != nil:
		return "exited " + strconv.Itoa(*p.ExitCode)
	}
	return "ended"
}

// commandLine is an argument vector for people; a shell's line is shown as the
// line alone.
func commandLine(argv []string) string {
	if len(argv) == 4 && argv[1] == "-l" && argv[2] == "-c" {
		argv = argv[3:]
	}
	return strings.Map(printable, strings.Join(argv, " "))
}
