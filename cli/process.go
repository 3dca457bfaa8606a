package cli

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func newProcess(a *app) *cobra.Command {
	cmd := group("process", "Feed, signal and end the commands of a sandbox", newProcessStdin(a), newProcessSignal(a), newProcessKill(a))
	cmd.Long = `Feed, signal and end commands that were started in a sandbox. bothy ps lists
them, and bothy logs shows what they write.`
	return cmd
}

func processID(text string) (int, error) {
	pid, err := strconv.Atoi(text)
	if err != nil || pid < 1 {
		return 0, usagef("`bothy ps` lists the pids.", "%q is not a pid", text)
	}
	return pid, nil
}

func newProcessStdin(a *app) *cobra.Command {
	var eof bool
	cmd := &cobra.Command{
		Use:   "stdin SANDBOX PID [TEXT]",
		Short: "Write to the input of a command started with exec -d",
		Long: `Write to the input of a command started with exec -d: a line, or without one all
of standard input. --eof ends the command's input.`,
		Example: `  bothy process stdin sbx4f2a 214 'yes'
  bothy process stdin sbx4f2a 214 --eof < data.csv`,
		Args: usage(cobra.RangeArgs(2, 3)),
	}
	cmd.Flags().BoolVar(&eof, "eof", false, "end the command's input after that")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		pid, err := processID(args[1])
		if err != nil {
			return err
		}
		if len(args) == 3 {
			return s.exec.Stdin(ctx, args[0], pid, []byte(args[2]+"\n"), eof)
		}
		return interrupted(ctx, a.passInput(ctx, s, args[0], pid, eof))
	})
	return cmd
}

// passInput copies our standard input to that of a process, and closes it there if eof is set.
func (a *app) passInput(ctx context.Context, s *session, id string, pid int, eof bool) error {
	buf := make([]byte, 1<<20)
	for {
		n, err := a.stdin.Read(buf)
		done := err == io.EOF
		if err != nil && !done {
			return err
		}
		if n > 0 || done && eof {
			if err := s.exec.Stdin(ctx, id, pid, buf[:n], done && eof); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
	}
}

func newProcessSignal(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "signal SANDBOX PID SIGNAL",
		Short: "Send a signal to a command and its whole process group",
		Example: `  bothy process signal sbx4f2a 214 INT
  bothy process signal sbx4f2a 214 10`,
		Args: usage(cobra.ExactArgs(3)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		pid, err := processID(args[1])
		if err != nil {
			return err
		}
		number, err := signalNumber(args[2])
		if err != nil {
			return err
		}
		return s.exec.Signal(ctx, args[0], pid, number)
	})
	return cmd
}

// signals are the names of Linux's signals, by number: those of this host may differ.
var signals = []string{
	"", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
	"STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
}

// signalNumber parses 15, TERM or SIGTERM.
func signalNumber(text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= 64 {
		return n, nil
	}
	name := strings.ToUpper(text)
	if n := slices.Index(signals, strings.TrimPrefix(name, "SIG")); n > 0 {
		return n, nil
	}
	return 0, usagef("Name it as in INT or SIGINT, or give its number from 1 to 64.", "%q is not a signal", text)
}

func newProcessKill(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kill SANDBOX PID…",
		Short: "Kill commands and everything they started",
		Args:  usage(cobra.MinimumNArgs(2)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		for _, text := range args[1:] {
			pid, err := processID(text)
			if err != nil {
				return err
			}
			if err := s.exec.Signal(ctx, args[0], pid, int(syscall.SIGKILL)); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}
