//go:build linux && !clientonly

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

// stopTimeout bounds the time that the server may take to end.
const stopTimeout = 60 * time.Second

// downResult is what `down --json` prints.
type downResult struct {
	Stopped bool `json:"stopped"`
	PID     int  `json:"pid,omitempty"`
	// Paused sandboxes are stored in a snapshot; Running ones could not be paused and continue
	// without a server.
	Paused  []string `json:"paused"`
	Running []string `json:"running"`
}

func newDown(a *app) *cobra.Command {
	var terminate bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the server on this host",
		Long: `Stop the server whose state is in $BOTHY_HOME (default /var/lib/bothy), whether
bothy up or bothy serve started it. The project's running sandboxes are paused
first, with their memory, and wait for bothy resume; --terminate ends them
instead.`,
		Args: usage(cobra.NoArgs),
	}
	cmd.Flags().BoolVar(&terminate, "terminate", false, "terminate the project's sandboxes instead of pausing them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.down(cmd.Context(), terminate) }
	return cmd
}

func (a *app) down(ctx context.Context, terminate bool) error {
	server, err := runningServer()
	if err != nil {
		return err
	}
	result := &downResult{Paused: []string{}, Running: []string{}}
	if server == nil {
		return a.printDown(result)
	}
	result.Stopped, result.PID = true, server.PID
	// A server that does not answer is stopped anyway, unless sandboxes should be ended.
	if err := a.drain(ctx, server, terminate, result); err != nil {
		if terminate {
			return err
		}
		a.warn("sandboxes could not be paused, and keep running until their time is up: %s", bothy.AsError(err).Detail)
	}
	if err := server.stop(stopTimeout); err != nil {
		return fmt.Errorf("the server (pid %d) did not stop within %s: %w", server.PID, stopTimeout, err)
	}
	if err := os.Remove(serverFilePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return a.printDown(result)
}

// drain pauses or ends the running sandboxes.
func (a *app) drain(ctx context.Context, server *serverFile, terminate bool, result *downResult) error {
	s, err := a.connectTo(server)
	if err != nil {
		return err
	}
	list, err := allSandboxes(ctx, s, bothy.SandboxFilter{States: bothy.LiveStates})
	if err != nil {
		return err
	}
	for _, sandbox := range list {
		switch {
		case terminate:
			if err := s.sandboxes.Terminate(ctx, sandbox.ID); err != nil {
				return err
			}
		case sandbox.State == bothy.StatePaused:
		default:
			if _, err := s.snapshots.Pause(ctx, sandbox.ID, bothy.PauseOptions{}); err != nil {
				fmt.Fprintf(a.stderr, "%s could not be paused: %v\n", sandbox.ID, bothy.AsError(err).Detail)
				result.Running = append(result.Running, sandbox.ID)
				continue
			}
			result.Paused = append(result.Paused, sandbox.ID)
		}
	}
	return nil
}

func (a *app) printDown(r *downResult) error {
	if a.json {
		return a.printJSON(r)
	}
	if !r.Stopped {
		fmt.Fprintf(a.stdout, "no server of %s is running\n", home())
		return nil
	}
	fmt.Fprintf(a.stdout, "stopped the server (pid %d)\n", r.PID)
	for _, id := range r.Paused {
		fmt.Fprintf(a.stdout, "paused %s; wake it with bothy up, and then bothy resume %s\n", id, id)
	}
	for _, id := range r.Running {
		fmt.Fprintf(a.stdout, "%s lives on until its time is up; the next server finds it again\n", id)
	}
	return nil
}
