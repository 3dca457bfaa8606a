//go:build linux && !clientonly

package cli

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/benchrun"
)

func newBench(a *app) *cobra.Command {
	var (
		r      benchrun.Request
		server bool
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this host",
		Long: `Measure how fast Bothy is on this host, through its API with a key, alternating
with other programs that do the same with the same files.

It starts separate servers, with their own folders and ports, and stops them
again; that needs root. With --server it measures the one that the other
commands talk to, as far as that makes sense. Programs to compare with that are
not installed are listed as missing. docs/benchmark.md says what each name means
and how it is measured.`,
		Example: `  sudo bothy bench --quick
  sudo bothy bench --only create_pool,exec -n 50 --out results
  sudo bothy bench --engine microvm --only create_exec_cold,resume_small
  sudo bothy bench --only 'work_*' --against docker,runsc,host
  sudo bothy bench --against docker,runsc,bwrap --json`,
		Args: usage(cobra.NoArgs),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&r.Only, "only", nil, "measure only these `names`; * stands for any letters")
	flags.StringSliceVar(&r.Against, "against", nil, "compare with these `programs`: docker, runsc, bwrap, host")
	flags.IntVarP(&r.Count, "count", "n", 0, "how many `turns` each takes (default: what is usual for it)")
	flags.BoolVar(&r.Quick, "quick", false, "take few turns")
	flags.IntVar(&r.Sandboxes, "sandboxes", 0, "how `many` live at once where that is measured (default: what memory allows, up to 1000)")
	flags.StringVar(&r.Materials, "materials", benchrun.DefaultMaterials, "`folder` in which packages for the work_* results are kept")
	flags.Float64Var(&r.Scale, "work-scale", 1, "how `much` work the work_* results do, as a part of the usual")
	flags.StringVar(&r.Out, "out", "", "write the raw samples and plots (SVG and PNG) into this `folder`")
	flags.BoolVar(&server, "server", false, "measure the server that the other commands talk to")
	flags.StringVar(&r.Engine, "engine", "", "`engine` to measure: gvisor, microvm or auto (default the server's)")
	flags.StringVarP(&r.Template, "template", "t", "python-3.12-bare", "`name` of the template to measure with")
	cmd.RunE = func(*cobra.Command, []string) error {
		r.JSON = a.json
		if server {
			c, err := a.credentials()
			if err != nil {
				return err
			}
			r.URL, r.Key = c.URL, c.APIKey
		} else if os.Geteuid() != 0 {
			return bothy.Errorf(bothy.CodePermission, "only root can start servers to measure").
				WithHint("Run: sudo bothy bench, or measure a server that runs with --server.")
		}
		return bench(r)
	}
	return cmd
}

// bench replaces this process by the program that measures.
func bench(r benchrun.Request) error {
	var err error
	if r.Bothy, err = os.Executable(); err != nil {
		return err
	}
	r.Templates, r.Kernels = templatesHome(), kernelsHome()
	err = benchrun.Exec(r)
	if errors.Is(err, benchrun.ErrNotInstalled) {
		return bothy.Errorf(bothy.CodeNotFound, "%v", err).
			WithHint("`make build` builds it next to bothy, and `make install` installs both.")
	}
	return err
}
