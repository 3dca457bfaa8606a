package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newWait(a *app) *cobra.Command {
	var req bothy.WaitRequest
	cmd := &cobra.Command{
		Use:   "wait SANDBOX",
		Short: "Wait until something in a sandbox is ready",
		Long: `Wait until a server listens on a port, a URL is answered, a line is written to
the output of a command or to a file, or, with --pid alone, until a process ends.
With --pid, the end of that process ends the wait.`,
		Example: `  bothy wait sbx4f2a --port 8000 --timeout 5m
  bothy wait sbx4f2a --url http://localhost:8000/health --pid 214
  bothy wait sbx4f2a --log 'listening on' --pid 214
  bothy wait sbx4f2a --pid 214`,
		Args: usage(cobra.ExactArgs(1)),
	}
	flags := cmd.Flags()
	flags.IntVar(&req.Port, "port", 0, "wait until a server accepts connections on this `port`")
	flags.StringVar(&req.URL, "url", "", "wait until this `URL`, as seen inside, is answered")
	flags.IntVar(&req.Status, "status", 0, "with --url, the `status` to wait for (default any from 200 to 399)")
	flags.StringVar(&req.Log, "log", "", "wait for a line that contains this `text`")
	flags.BoolVar(&req.Regex, "regex", false, "with --log, the text is a regular expression")
	flags.StringVar(&req.Path, "file", "", "with --log, the `file` to search, which need not exist yet")
	flags.IntVar(&req.PID, "pid", 0, "the `process` whose output or end is waited for")
	fractionVar(flags, &req.TimeoutSeconds, "timeout", "`time` after which to stop waiting, as in 90s or 5m, 10m at most (default 1m)")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		r, err := s.exec.Wait(ctx, args[0], req)
		if err != nil {
			return err
		}
		if r.TimedOut && !a.json {
			return bothy.Errorf(bothy.CodeTimeout, "the time was up before what was waited for came").WithHint("Wait longer with --timeout.")
		}
		return a.show(r, func(w io.Writer) {
			switch {
			case r.Line != "":
				fmt.Fprintln(w, r.Line)
			case r.ExitCode != nil:
				fmt.Fprintf(w, "exit code %d\n", *r.ExitCode)
			}
		})
	})
	return cmd
}
