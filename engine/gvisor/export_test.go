package gvisor

import (
	"os"

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
