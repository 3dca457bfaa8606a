package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newUpdate(a *app) *cobra.Command {
	var (
		name, onTimeout, onLoss string
		timeout, idle           int
		metadata                []string
		noMetadata              bool
		budget                  float64
		every                   interval
	)
	cmd := &cobra.Command{
		Use:   "update SANDBOX",
		Short: "Change a sandbox that runs or is paused",
		Long: `Change the given settings of a running or paused sandbox immediately, and leave the
others unchanged. Its network and its secrets are changed by ` + "`bothy network set`" + ` and
` + "`bothy network secrets`" + `.`,
		Example: `  bothy update sbx4f2a --timeout 3600 --on-timeout pause
  bothy update sbx4f2a --name ci --metadata run=17
  bothy update sbx4f2a --checkpoint 60s --on-host-loss resume`,
		Args: usage(cobra.ExactArgs(1)),
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "`name` of the sandbox")
	flags.StringArrayVar(&metadata, "metadata", nil, "metadata, as `KEY=VALUE` (repeatable): all of it, and what is not given is dropped")
	flags.BoolVar(&noMetadata, "no-metadata", false, "drop all metadata")
	secondsVar(flags, &timeout, "timeout", "`time` from now until its time is up, as in 90s or 2h, 0 for never")
	flags.StringVar(&onTimeout, "on-timeout", "", "`what` happens then: terminate or pause")
	secondsVar(flags, &idle, "idle", "pause after an idle `time`, as in 5m, 0 for never")
	flags.Var(&every, "checkpoint", "take a checkpoint every `interval` while it runs, as in 60s; 0 for never")
	flags.StringVar(&onLoss, "on-host-loss", "", "`what` happens to it when its host is lost: pause, resume or fail")
	flags.Float64Var(&budget, "budget", 0, "`amount` that the sandbox and its forks may spend, 0 for any")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		var u bothy.SandboxUpdate
		if noMetadata && len(metadata) > 0 {
			return usagef("Leave one of them out.", "--no-metadata drops what --metadata sets")
		}
		var err error
		if u.Metadata, err = keyValues("--metadata", metadata); err != nil {
			return err
		}
		if noMetadata {
			u.Metadata = map[string]string{}
		}
		set := noMetadata || len(metadata) > 0
		for flag, take := range map[string]func(){
			"name":         func() { u.Name = &name },
			"timeout":      func() { u.TimeoutSeconds = &timeout },
			"on-timeout":   func() { u.OnTimeout = (*bothy.OnTimeout)(&onTimeout) },
			"idle":         func() { u.IdleSeconds = &idle },
			"checkpoint":   func() { seconds := int(every); u.CheckpointSeconds = &seconds },
			"on-host-loss": func() { u.OnHostLoss = (*bothy.OnHostLoss)(&onLoss) },
			"budget":       func() { u.Budget = &budget },
		} {
			if flags.Changed(flag) {
				take()
				set = true
			}
		}
		if !set {
			return usagef("Give one of the flags; `bothy update --help` lists them.", "there is nothing to change")
		}
		sandbox, err := s.sandboxes.Update(ctx, args[0], u)
		if err != nil {
			return err
		}
		if u.TimeoutSeconds != nil && sandbox.State == bothy.StatePaused {
			fmt.Fprintf(a.stderr, "%s is paused: its new time-out begins when it is resumed.\n", sandbox.ID)
		}
		return a.show(sandbox, func(w io.Writer) { fmt.Fprintln(w, sandbox.ID) })
	})
	return cmd
}
