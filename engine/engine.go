// Package engine is what engines share: finding leftovers of machines, and errors.
package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/uid"
)

// Sweep calls remove for every machine that has left a cgroup or a folder in dir, and
// is not owned. It returns their names, and the errors joined.
func Sweep(groups *cgroup.Parent, dir string, owned func(name string) bool, remove func(name string) error) ([]string, error) {
	found := map[string]bool{}
	names, err := groups.List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		found[name] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, d := range entries {
		if d.IsDir() {
			found[d.Name()] = true
		}
	}
	var swept []string
	var errs []error
	for name := range found {
		if owned(name) {
			continue
		}
		errs = append(errs, remove(name))
		swept = append(swept, name)
	}
	slices.Sort(swept)
	return swept, errors.Join(errs...)
}

// StartError keeps errors that already say what to do, and wraps any other as a failure of op in
// the named engine.
func StartError(name, op string, err error) error {
	var be *bothy.Error
	if errors.As(err, &be) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := bothy.Errorf(bothy.CodeEngine, "the %s engine could not start the sandbox", name).
		WithHint("Run `bothy doctor`; the server's log has the cause.").Because(err)
	e.Op = op
	return e
}

// Conflict is the error of a machine whose id is in use.
func Conflict(id string) error {
	return bothy.Errorf(bothy.CodeConflict, "machine %q exists already", id)
}

// OpenImage opens an image that a machine starts from, for reading.
func OpenImage(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "the image %s cannot be opened", filepath.Base(path)).
			WithHint("Build the template again: bothy template build NAME --force.").Because(err)
	}
	return f, nil
}

// UIDs is a pool of user ids, or the default one. Its error says what to set.
func UIDs(p *uid.Pool) (*uid.Pool, error) {
	if p != nil {
		return p, nil
	}
	return uid.Default()
}

// Groups returns the parent cgroup of an engine's machines. Its error says what the host lacks.
func Groups(parent string) (*cgroup.Parent, error) {
	p, err := cgroup.NewParent(parent)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeEngineMissing, "cgroups cannot be used on this host: %v", err).
			WithHint("Run as root, outside a container or in one with a writable cgroup; `bothy doctor` says more.").Because(err)
	}
	return p, nil
}
