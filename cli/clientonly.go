//go:build !linux || clientonly

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

// helper is nil: the client starts no processes of its own program.
func helper() func() int { return nil }

// Templates are pulled on the server's host.
func (a *app) servedHere() bool { return false }

type pullFlags struct{}

func (a *app) pullTemplate(context.Context, string, pullFlags) (*bothy.Template, bool, error) {
	return nil, false, errors.ErrUnsupported
}

// engineBuild is "": the client has no engine.
func engineBuild() string { return "" }

// The commands of a host of sandboxes say where they can be used.

func newUp(*app) *cobra.Command    { return onServersHost("up", "Start the server") }
func newDown(*app) *cobra.Command  { return onServersHost("down", "Stop the server") }
func newServe(*app) *cobra.Command { return onServersHost("serve", "Run the server") }
func newBench(*app) *cobra.Command { return onServersHost("bench", "Measure a host") }

func newDoctor(*app) *cobra.Command  { return onServersHost("doctor", "Check a host") }
func newMigrate(*app) *cobra.Command { return onServersHost("migrate", "Move a server's records") }
func newHostJoin(*app) *cobra.Command {
	return onServersHost("join", "Make a computer a host of a cluster")
}
func newTemplateExport(*app) *cobra.Command {
	return onServersHost("export", "Write a built template to a file or a registry")
}
func newTemplatePull(*app) *cobra.Command {
	return onServersHost("pull", "Take a built template from a file or a registry")
}

// onServersHost makes a command that exists only in the whole program, whatever its arguments.
func onServersHost(name, short string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              short + " (on a Linux host, with the whole program)",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bothy.Errorf(bothy.CodeUnsupported, "`%s` needs a Linux host and the whole program: this is the client alone", cmd.CommandPath()).
				WithHint("Run it on the server's host. To use a server from here, set BOTHY_URL and BOTHY_API_KEY.")
		},
	}
}

// connectToSelf finds nothing: there is no server on this host.
func (a *app) connectToSelf() (*session, error) { return nil, nil }
