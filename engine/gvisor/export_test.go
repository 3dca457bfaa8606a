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
