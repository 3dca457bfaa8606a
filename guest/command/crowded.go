package command

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/procfs"
)

const (
	// crowdedFor is how long the sandbox must have had all the processes that it may have: a build
	// with many jobs may have them for a moment.
	crowdedFor  = time.Second
	crowdedStep = 100 * time.Millisecond
)

// Crowded returns an error if the sandbox has all the processes that it may have, as after a fork
// bomb. A shell that is started then tries for a quarter of a minute to start something, and fails.
func (m *Manager) Crowded() error { return crowded(processLimit()) }

func crowded(most int) error {
	for end := time.Now().Add(crowdedFor); ; time.Sleep(crowdedStep) {
		var info unix.Sysinfo_t
		switch {
		case most == 0 || unix.Sysinfo(&info) != nil || int(info.Procs) < most:
			return nil
		case time.Now().After(end):
			return crowdedError(most)
		}
	}
}

// processLimit is how many processes and threads the sandbox may have, or 0.
func processLimit() int {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &l) != nil || l.Cur > bothy.MaxProcesses {
		return 0
	}
	return int(l.Cur)
}

func crowdedError(most int) error {
	all, err := procfs.All()
	if err != nil {
		return nil
	}
	of := map[string]int{}
	for _, p := range all {
		of[p.Name]++
	}
	// A virtual machine's kernel counts its own threads as well. And who has reached the limit with
	// threads alone may still succeed.
	if len(all) < most-most/16 || len(of) == 0 {
		return nil
	}
	name := slices.MaxFunc(slices.Collect(maps.Keys(of)), func(a, b string) int { return cmp.Compare(of[a], of[b]) })
	return bothy.Errorf(bothy.CodeCapacity, "the sandbox has all the %d processes that it may have, and %d of them are %q, so a shell could start nothing", most, of[name], name).
		WithHint("End them with one command that needs no shell, as root: `pkill -9 -x %s`, or `kill -9 -1` for all of them.", name)
}
