package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/doctor"
)

// startProbes start a sandbox on each engine. The parts list fills them in.
var startProbes []doctor.StartProbe

func newDoctor(a *app) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this host by really starting a sandbox on each engine",
		Long: `Check this host: its kernel, rights, tools, disk, memory and port, and then
start a sandbox on each engine. Every finding that is not good says what to do.

The exit code is 1 when a check failed.`,
		Args: usage(cobra.NoArgs),
	}
	cmd.Flags().StringVar(&listen, "listen", listenAddress(), "`address` that the server listens on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), listen) }
	return cmd
}

func (a *app) doctor(ctx context.Context, listen string) error {
	server, err := runningServer()
	if err != nil {
		return err
	}
	if server != nil {
		listen = server.Listen
	}
	host := doctor.NewHost(home(), templatesHome(), listen)
	host.Probes = startProbes
	if server != nil {
		host.Probes = append(host.Probes, doctor.StartProbe{Engine: "of the running server", Start: a.startThrough(server)})
	}
	report := doctor.Run(ctx, host.Checks(), func(r doctor.Result) {
		if !a.json {
			a.printResult(a.stdout, r)
		}
	})
	if a.json {
		err = a.printJSON(report)
	}
	if err == nil && !report.OK {
		err = exitCode(exitFailed)
	}
	return err
}

// startThrough starts a sandbox by asking the running server for one.
func (a *app) startThrough(server *serverFile) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		s, err := a.connectTo(server)
		if err != nil {
			return 0, err
		}
		return startOne(ctx, s)
	}
}

// startOne measures creation to the end of a first command.
func startOne(ctx context.Context, s *session) (time.Duration, error) {
	templates, err := s.templates.Templates(ctx)
	if err != nil {
		return 0, err
	}
	if len(templates) == 0 {
		return 0, bothy.Errorf(bothy.CodeTemplateNotFound, "the server has no template").
			WithHint("Run: bothy template build %s", bothy.DefaultTemplate)
	}
	start := time.Now()
	sandbox, err := s.sandboxes.Create(ctx, bothy.SandboxCreate{Template: templates[0].Name})
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.sandboxes.Terminate(context.WithoutCancel(ctx), sandbox.ID) }()
	result, err := s.exec.Exec(ctx, sandbox.ID, bothy.ExecRequest{Command: bothy.Command{Args: []string{"/bin/true"}}})
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("/bin/true ended with exit code %d: %s", result.ExitCode, result.Stderr)
	}
	return time.Since(start), err
}

var statusColors = map[doctor.Status]string{doctor.OK: "\x1b[32m", doctor.Warn: "\x1b[33m", doctor.Fail: "\x1b[31m"}

func (a *app) printResult(w io.Writer, r doctor.Result) {
	status := fmt.Sprintf("%-4s", r.Status)
	if a.color() {
		status = statusColors[r.Status] + status + "\x1b[0m"
	}
	fmt.Fprintf(w, "%s  %-16s  %s\n", status, r.Name, r.Detail)
	if r.Fix != "" {
		fmt.Fprintf(w, "%24s%s\n", "", r.Fix)
	}
}
