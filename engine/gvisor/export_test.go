package gvisor

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/engine/cgroup"
)

// RemoveParent removes the cgroup that a test made.
func RemoveParent(name string) error {
	p, err := cgroup.NewParent(name)
	if err != nil {
		return err
	}
	return p.Remove()
}

// SetBootCPUs pins each booting machine to one of these processors, until the function that it
// returns is called, when those machines have ended or are grown up.
func SetBootCPUs(all unix.CPUSet) (undo func()) {
	bootCPUs.mu.Lock()
	defer bootCPUs.mu.Unlock()
	before := bootCPUs.on
	bootCPUs.all, bootCPUs.on = all, map[int]int{}
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) {
			bootCPUs.on[cpu] = 0
		}
	}
	return func() {
		bootCPUs.mu.Lock()
		defer bootCPUs.mu.Unlock()
		bootCPUs.on = before
	}
}

// SetConfiner has sentries started by another program, until the function that it
// returns is called.
func SetConfiner(program *os.File) (undo func()) {
	before := confiner
	confiner = func() *os.File { return program }
	return func() { confiner = before }
}

// SetControlTime has an engine wait so long for whatever it asks of a sentry.
func (e *Engine) SetControlTime(d time.Duration) { e.controlTime = d }
