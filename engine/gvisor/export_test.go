package gvisor

import (
	"os"
	"time"

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

// SetConfiner has sentries started by another program, until the function that it
// returns is called.
func SetConfiner(program *os.File) (undo func()) {
	before := confiner
	confiner = func() *os.File { return program }
	return func() { confiner = before }
}

// SetControlTime has an engine wait so long for whatever it asks of a sentry.
func (e *Engine) SetControlTime(d time.Duration) { e.controlTime = d }
