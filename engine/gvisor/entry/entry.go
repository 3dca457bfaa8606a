// Package entry is what runs inside the processes that engine/gvisor starts:
// the sentry that boots a sandbox, and the network namespace helper. Only
// cmd/sentry and tests import it.
package entry

import (
	"fmt"
	"os"
	"os/signal"
	"slices"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/bothy-dev/bothy/engine/gvisor/driver"
	"github.com/bothy-dev/bothy/engine/gvisor/netns"
	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

// Main runs what the arguments ask for. For a sandbox it does not return.
func Main() error {
	if len(os.Args) > 1 && os.Args[1] == netns.Arg {
		return netns.Serve(3, netns.DefaultConfig())
	}
	if len(os.Args) > 1 && os.Args[1] == driver.Arg {
		return driver.Serve(os.Stdin, os.Stdout)
	}
	if err := closeInherited(os.Args[1:]); err != nil {
		return fmt.Errorf("close what was inherited: %w", err)
	}
	// The server ends a sentry with SIGKILL. These signals come from elsewhere, such as a host
	// that shuts down, and are not meant for the sentry alone.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM)
	deferGC()
	log.SetLevel(log.Warning) // what the library would say otherwise is not read
	if slices.Contains(os.Args, "boot") {
		if tuning.On(tuning.Announce) {
			keepCaller(os.Args)
		}
		if tuning.On(tuning.Processors) {
			fixProcessors()
		}
	}
	narrow(os.Args)
	patchLater()
	installGuards()
	watchGiving()
	mixBootID()
	if tuning.On(tuning.Filter) {
		presetFilter()
	}
	if tuning.On(tuning.TracePoints) {
		skipTracePoints()
	}
	if tuning.On(tuning.Processor) {
		initProcessor()
	}
	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot):   "",
		new(sentrycmd.Umount): "",
	}, nil)
	return nil
}

// narrow revokes the sentry's direct access to the host's files. On the server's side, the
// library ties two things to that one option: a user namespace of our choice, in which the
// sentry drops its capabilities without executing itself again, and a wider system call filter.
// We want only the first.
func narrow(args []string) {
	for i, a := range args {
		if a == "--directfs=true" {
			args[i] = "--directfs=false"
		}
	}
}
