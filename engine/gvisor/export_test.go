package gvisor

import "github.com/bothy-dev/bothy/engine/cgroup"

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
func SetConfiner(path string) (undo func()) {
	before := confiner
	confiner = func() string { return path }
	return func() { confiner = before }
}
