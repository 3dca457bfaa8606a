//go:build linux && !clientonly

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/engine"
	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
	"github.com/bothy-dev/bothy/server/probe"
)

// An optimisation makes an engine faster, and can be switched off.
type optimisation struct {
	Name  string `json:"name"`
	State string `json:"state"` // on or off
	Does  string `json:"does"`
	Where string `json:"where"`
}

type doctorFlags struct {
	listen string
	config string
	fix    bool
	end    bool
	more   bool
}

func newDoctor(a *app) *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this host by really starting a sandbox on each engine",
		Long: `Check this host: its kernel, rights, tools, disk, memory and port, start a
sandbox on each engine, and check what the server has stored: whether its
database can be reached, whether template images are intact, which engine builds
are kept and what needs them, and whether any running machines belong to
sandboxes that the database has lost. Every problem comes with what to do about
it.

It also looks for sandboxes that are still running although their server's
folder was deleted. Those of any other server are left alone.

With --fix it ends such sandboxes, installs missing programs with apt-get,
including those that only virtual machines need, and fetches the newest kernel
for virtual machines from Debian. A running server uses a new kernel after a
restart; memory snapshots are still restored with the kernel that wrote them.

Machines whose sandboxes the database has lost are frozen and kept, so that
nothing is gone once the database is restored. With --end-unclaimed the server
ends them, within seconds.

With -v it also lists the optimisations of the gVisor engine. For maintainers: a
server started with BOTHY_GVISOR_OFF=NAME,NAME… switches these off.

The exit code is 1 when a check failed.`,
		Example: `  bothy doctor
  sudo bothy doctor --fix`,
		Args: usage(cobra.NoArgs),
	}
	cmd.Flags().StringVar(&f.listen, "listen", listenAddress(), "`address` that the server listens on")
	cmd.Flags().StringVar(&f.config, "config", "", "`file` with the server's settings")
	cmd.Flags().BoolVar(&f.fix, "fix", false, "install what is missing, fetch a kernel for virtual machines, and end sandboxes of deleted servers")
	cmd.Flags().BoolVar(&f.end, "end-unclaimed", false, "end the machines whose sandboxes the database has lost")
	cmd.Flags().BoolVarP(&f.more, "verbose", "v", false, "list the optimisations of the gVisor engine")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), f) }
	return cmd
}

func (a *app) doctor(ctx context.Context, f doctorFlags) error {
	settings, err := config.Load(f.config, os.Getenv)
	if err == nil {
		err = settings.Finish()
	}
	if err != nil {
		return err
	}
	server, err := runningServer()
	if err != nil {
		return err
	}
	if server != nil {
		f.listen = server.Listen
	}
	host := doctor.NewHost(settings.Home, settings.Templates, f.listen)
	host.Probes = probe.Engines(settings)
	host.Orphans = orphanNames
	if f.fix {
		if err := a.fix(ctx, host, settings); err != nil {
			return err
		}
	}
	if server != nil {
		host.Probes = append(host.Probes, doctor.StartProbe{Engine: "of the running server", Start: a.startThrough(server)})
	}
	if f.end {
		if err := a.endUnclaimed(settings); err != nil {
			return err
		}
	}
	report := doctor.Run(ctx, append(host.Checks(), stateChecks(settings)...), func(r doctor.Result) {
		if !a.json {
			a.printResult(a.stdout, r)
		}
	})
	var list []optimisation
	if f.more {
		if list, err = listOptimisations(); err != nil {
			return err
		}
	}
	if a.json {
		err = a.printJSON(struct {
			doctor.Report
			Optimisations []optimisation `json:"optimisations,omitempty"`
		}{report, list})
	} else {
		printOptimisations(a.stdout, list)
	}
	if err == nil && !report.OK {
		err = exitCode(exitFailed)
	}
	return err
}

// fix installs what is missing on this host and fetches a kernel.
func (a *app) fix(ctx context.Context, host *doctor.Host, settings config.Config) error {
	if os.Geteuid() != 0 {
		return bothy.Errorf(bothy.CodePermission, "only root can install programs and fetch a kernel").WithHint("Run: sudo bothy doctor --fix")
	}
	if err := a.endOrphans(); err != nil {
		return err
	}
	if missing := append(host.MissingPackages(), host.MissingEnginePackages()...); len(missing) > 0 {
		if _, err := exec.LookPath("apt-get"); err != nil {
			return bothy.Errorf(bothy.CodeUnsupported, "this host has no apt-get to install %s with", strings.Join(missing, ", ")).
				WithHint("Install them in the way of this host, then run it again.")
		}
		// Package lists that cannot be updated may still suffice.
		_ = a.hostCommand(ctx, "apt-get update -q")
		if err := a.install(ctx, missing); err != nil {
			return err
		}
	}
	return probe.FetchKernel(ctx, settings, func(step string) { fmt.Fprintln(a.stderr, step) })
}

// orphanNames names each machine without a server by its folder.
func orphanNames() (names []string, err error) {
	orphans, err := engine.Orphans()
	for _, o := range orphans {
		names = append(names, o.Folder)
	}
	return names, err
}

// endOrphans ends the machines whose server's folder was deleted.
func (a *app) endOrphans() error {
	orphans, err := engine.Orphans()
	if err != nil {
		return err
	}
	for _, o := range orphans {
		fmt.Fprintln(a.stderr, "ending the sandbox of the deleted folder", o.Folder)
		if err := o.End(); err != nil {
			return fmt.Errorf("end the sandbox of %s: %w", o.Folder, err)
		}
	}
	return nil
}

// startThrough starts a sandbox through the running server.
func (a *app) startThrough(server *serverFile) func(context.Context) (doctor.Started, error) {
	return func(ctx context.Context) (doctor.Started, error) {
		s, err := a.connectTo(server)
		if err != nil {
			return doctor.Started{}, err
		}
		took, err := startOne(ctx, s)
		return doctor.Started{Took: took}, err
	}
}

// startOne measures the time from creation to the end of a first command.
func startOne(ctx context.Context, s *session) (time.Duration, error) {
	templates, err := s.templates.Templates(ctx)
	if err != nil {
		return 0, err
	}
	if len(templates) == 0 {
		return 0, bothy.Errorf(bothy.CodeTemplateNotFound, "the server has no template").
			WithHint("Run: bothy template pull FILE, or bothy template build %s", bothy.DefaultTemplate)
	}
	start := time.Now()
	sandbox, err := s.sandboxes.Create(ctx, bothy.SandboxCreate{Template: templateToTry(templates)})
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.sandboxes.Terminate(context.WithoutCancel(ctx), sandbox.ID) }()
	result, err := s.exec.Exec(ctx, sandbox.ID, bothy.ExecRequest{Command: bothy.Command{Args: []string{"/bin/true"}}})
	switch {
	case bothy.ErrorCode(err) == bothy.CodeCommandNotFound:
		err = nil // the sandbox runs and says so; an image need not have that program
	case err == nil && result.ExitCode != 0:
		err = fmt.Errorf("/bin/true ended with exit code %d: %s", result.ExitCode, result.Stderr)
	}
	return time.Since(start), err
}

// templateToTry is the default template if the server has it. A custom image may lack anything.
func templateToTry(templates []*bothy.Template) string {
	for _, t := range templates {
		if t.Name == bothy.DefaultTemplate {
			return t.Name
		}
	}
	return templates[0].Name
}

func listOptimisations() ([]optimisation, error) {
	off, err := tuning.Own()
	if err != nil {
		return nil, err
	}
	var list []optimisation
	for _, o := range tuning.All {
		state := "on"
		if off[o.Name] {
			state = "off"
		}
		list = append(list, optimisation{Name: o.Name, State: state, Does: o.Does, Where: o.Where})
	}
	return list, nil
}

func printOptimisations(w io.Writer, list []optimisation) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\nOptimisations of the gVisor engine (a server started with %s=NAME,NAME… does without some):\n", tuning.Variable)
	for _, o := range list {
		fmt.Fprintf(w, "  %-16s  %-8s  %s\n", o.Name, o.State, o.Does)
	}
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
