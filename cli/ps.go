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

func newProcesses(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "ps SANDBOX",
		Short: "List the commands that were started in a sandbox",
		Long: `List commands that were started through the API, and are running or have ended
with their output still buffered. With --all, also every process in the sandbox,
what it uses, and the TCP ports on which it listens.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("`bothy ls` lists the sandboxes.", "name the sandbox whose processes to list")
			}
			return usage(cobra.ExactArgs(1))(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list every process in the sandbox")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		read, print := s.exec.Processes, printProcesses
		if all {
			read, print = s.exec.AllProcesses, printProcessTable
		}
		list, err := read(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(list, func(w io.Writer) { print(w, list) })
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

// printProcessTable shows what runs, and then what has ended.
func printProcessTable(w io.Writer, list []bothy.ProcessInfo) {
	rows := make([][]string, len(list))
	for i, p := range list {
		parent, cpu, memory, ports := "-", "-", "-", "-"
		if p.Running {
			parent, cpu, memory = strconv.Itoa(p.ParentPID), fmt.Sprintf("%.2f s", p.CPUSeconds), size(p.MemoryBytes)
		}
		if len(p.Ports) > 0 {
			ports = strings.Trim(fmt.Sprint(p.Ports), "[]")
		}
		rows[i] = []string{strconv.Itoa(p.PID), parent, orDash(p.User), processState(p), cpu, memory, ports, commandLine(p.Command)}
	}
	table(w, []string{"PID", "PARENT", "USER", "STATE", "CPU", "MEMORY", "PORTS", "COMMAND"}, rows)
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

// commandLine is an argument vector for people; for a shell, it is just the shell's line.
func commandLine(argv []string) string {
	if len(argv) == 4 && argv[1] == "-l" && argv[2] == "-c" {
		argv = argv[3:]
	}
	return strings.Map(printable, strings.Join(argv, " "))
}
