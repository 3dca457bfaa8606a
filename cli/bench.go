package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/bench/payload"
	"github.com/bothy-dev/bothy/bench/suite"
	"github.com/bothy-dev/bothy/bench/work"
	"github.com/bothy-dev/bothy/client"
)

// payloadWord makes this program the payload of the network's cases.
const payloadWord = "payload"

type benchFlags struct {
	suite.Options
	server bool
	out    string
}

func newBench(a *app) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this host",
		Long: `Measure how fast Bothy is on this host, through its API with a key, and next to
other programs that do the same with the same files, turn by turn.

It starts servers of its own, with folders and ports of their own, and ends them
again; that needs root. With --server it measures the one that the other commands
talk to, as far as that makes sense. A rival that is not installed is said to be
missing. docs/benchmark.md says what each name means and how it is measured.`,
		Example: `  sudo bothy bench --quick
  sudo bothy bench --only create_pool,exec -n 50 --out results
  sudo bothy bench --engine microvm --only create_exec_cold,resume_small
  sudo bothy bench --only 'work_*' --against docker,runsc,host
  sudo bothy bench --against docker,runsc,bwrap --json`,
		Args: usage(cobra.NoArgs),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.Only, "only", nil, "measure only these `names`; * stands for any letters")
	flags.StringSliceVar(&f.Against, "against", nil, "compare with these `programs`: docker, runsc, bwrap, host")
	flags.IntVarP(&f.N, "count", "n", 0, "how many `turns` each takes (default: what is usual for it)")
	flags.BoolVar(&f.Quick, "quick", false, "take few turns")
	flags.IntVar(&f.Sandboxes, "sandboxes", 0, "how `many` live at once where that is measured (default: what memory allows, up to 1000)")
	flags.StringVar(&f.Materials, "materials", work.DefaultCache, "`folder` in which packages for the work_* results are kept")
	flags.Float64Var(&f.Scale, "work-scale", 1, "how `much` work the work_* results do, as a part of the usual")
	flags.StringVar(&f.out, "out", "", "write the raw samples and plots (SVG and PNG) into this `folder`")
	flags.BoolVar(&f.server, "server", false, "measure the server that the other commands talk to")
	flags.StringVar(&f.Lab.Engine, "engine", "", "`engine` to measure: gvisor, microvm or auto (default the server's)")
	flags.StringVarP(&f.Lab.Template, "template", "t", "python-3.12-bare", "`name` of the template to measure with")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.Check(); err != nil {
			return usageError(cmd, err)
		}
		return a.bench(cmd.Context(), f)
	}
	cmd.AddCommand(&cobra.Command{
		Use: payloadWord, Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		Short: "Be what the network's cases run",
		RunE:  func(_ *cobra.Command, args []string) error { return payload.Main(args) },
	})
	return cmd
}

func (a *app) bench(ctx context.Context, f benchFlags) error {
	if isTerminal(a.stderr) {
		f.Say = func(text string) { fmt.Fprintln(a.stderr, "bench:", text) }
	}
	if err := a.prepareBench(ctx, &f); err != nil {
		return err
	}
	outcome, failed := suite.Run(ctx, f.Options)
	if outcome == nil {
		return failed
	}
	if f.out != "" {
		written, err := outcome.Write(f.out)
		if err != nil {
			return err
		}
		for _, path := range written {
			fmt.Fprintln(a.stderr, "wrote", path)
		}
	}
	if err := a.showBench(&outcome.Report); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("not everything could be measured: %w", f.templateMissing(failed))
	}
	return nil
}

// templateMissing says how a template is made where no server runs yet: those that bench
// starts are gone when it ends.
func (f benchFlags) templateMissing(err error) error {
	var e *bothy.Error
	if !f.server && errors.As(err, &e) && e.Code == bothy.CodeTemplateNotFound {
		_ = e.WithHint("Templates are taken from %s. Run: bothy up, then bothy template build NAME, and bothy bench again.", templatesHome())
	}
	return err
}

// showBench prints a table for people, and JSON for everybody else.
func (a *app) showBench(r *bench.Report) error {
	if a.json || !isTerminal(a.stdout) {
		return a.printJSON(r.Brief())
	}
	return r.Table(a.stdout)
}

// prepareBench finds the server to measure, or goes where servers of its own can
// be started: into namespaces, in a process of its own.
func (a *app) prepareBench(ctx context.Context, f *benchFlags) error {
	if f.server {
		c, err := a.credentials()
		if err == nil {
			f.Target = &bench.Target{Client: client.New(c.URL, c.APIKey), Template: f.Lab.Template, Engine: f.Lab.Engine}
			err = f.Fetch(ctx)
		}
		return err
	}
	if os.Geteuid() != 0 {
		return bothy.Errorf(bothy.CodePermission, "only root can start servers to measure").
			WithHint("Run: sudo bothy bench, or measure a server that runs with --server.")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.Lab.Kernels = kernelsHome()
	f.Lab.Bothy, f.Lab.Templates, f.Lab.Payload = self, templatesHome(), []string{"bench", payloadWord}
	if f.Lab.Runsc, err = exec.LookPath("runsc"); err != nil && !errors.Is(err, exec.ErrNotFound) {
		return err
	}
	if !lab.Inside() { // where there is no network
		if err := f.Fetch(ctx); err != nil {
			return err
		}
	}
	return lab.Enter()
}
