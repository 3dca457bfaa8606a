package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// versionResult is what `version --json` prints.
type versionResult struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"` // of the source
	Engine  string `json:"engine,omitempty"` // the build of gVisor's engine inside, by which snapshots are told apart
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v := versionResult{Version: a.version, Commit: a.commit, Engine: engineBuild()}
			if a.json {
				return a.printJSON(v)
			}
			if _, err := fmt.Fprintln(a.stdout, "bothy version", v.Version); err != nil {
				return err
			}
			if v.Commit != "" {
				fields(a.stdout, "commit", v.Commit)
			}
			if v.Engine != "" {
				fields(a.stdout, "engine", v.Engine)
			}
			return nil
		},
	}
}
