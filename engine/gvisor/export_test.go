package gvisor

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/engine/cgroup"
)

// RemoveParent removes a test's cgroup.
func RemoveParent(name string) error {
	p, err := cgroup.NewParent(name)
	if err != nil {
		return err
	}
	return p.Remove()
}

// SetBootCPUs pins each booting machine to one of these processors until the returned function is called,
// after those machines have ended or are released.
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

// SetConfiner makes another program start sentries until the returned function is called.
func SetConfiner(program *os.File) (undo func()) {
	before := confiner
	confiner = func() *os.File { return program }
	return func() { confiner = before }
}

// SetControlTime sets how long an engine waits for a sentry's answers.
func (e *Engine) SetControlTime(d time.Duration) { e.controlTime = d }
