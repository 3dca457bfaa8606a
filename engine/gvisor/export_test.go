package gvisor

import (
	"os"
	"time"

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

// SetConfiner makes another program start sentries until the returned function is called.
func SetConfiner(program *os.File) (undo func()) {
	before := confiner
	confiner = func() *os.File { return program }
	return func() { confiner = before }
}

// SetControlTime sets how long an engine waits for a sentry's answers.
func (e *Engine) SetControlTime(d time.Duration) { e.controlTime = d }
