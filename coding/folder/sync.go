package folder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Report says what a Sync has copied.
type Report struct {
	// In and Out are how many files, folders and links were copied into and out of the sandbox,
	// including removals, and Bytes their size.
	In, Out int
	Bytes   int64
	// Conflicts are the files that were changed on both sides.
	Conflicts []string
}

// Sync copies to each side what was changed on the other since the last time. If both have
// changed, both are kept: the sandbox's file is then next to the local one, which goes into the
// sandbox.
func (f *Folder) Sync(ctx context.Context) (Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.rules.read(); err != nil {
		return Report{}, err
	}
	local, err := f.scan(ctx)
	if err != nil {
		return Report{}, err
	}
	remote, err := f.list(ctx)
	if err != nil {
		return Report{}, err
	}
	p := f.plan(local, remote)
	out, err := newWriter(f, local)
	if err != nil {
		return Report{}, err
	}
	defer out.close()
	// The agent's changes come first: the user is waiting for them.
	pullErr := out.pull(ctx, p.pull, remote)
	pushed, pushErr := f.push(ctx, slices.Sorted(slices.Values(append(p.push, out.back...))), local, remote)
	r := out.report
	r.In = pushed.In
	r.Bytes += pushed.Bytes
	return r, errors.Join(pullErr, pushErr)
}

// plan is what will be copied, by name, with the names sorted: a folder comes before its
// content.
type plan struct{ pull, push []string }

func (f *Folder) plan(local, remote map[string]entry) (p plan) {
	names := map[string]bool{}
	for name := range f.base {
		names[name] = true
	}
	for _, m := range []map[string]entry{local, remote} {
		for name := range m {
			names[name] = true
		}
	}
	pull, push := map[string]bool{}, map[string]bool{}
	for name := range names {
		l, r, b := local[name], remote[name], f.base[name]
		changedHere, changedThere := l != b.Local, r != b.Remote
		switch {
		case !l.there() && !r.there():
			delete(f.base, name)
		case changedThere && refused(name, remote) != "":
			f.note("left %s in the sandbox as it is there: %s", name, refused(name, remote))
			if !r.there() { // nothing is lost if this host's goes in again
				f.base[name] = pair{Local: b.Local}
			}
		case changedThere && (!changedHere || r.there()):
			pull[name] = true
		case changedHere:
			push[name] = true
		}
	}
	// A folder that was removed here is made again if something in it is copied out.
	for name := range pull {
		for dir := path.Dir(name); remote[name].there() && dir != "."; dir = path.Dir(dir) {
			if remote[dir].Kind == kindFolder && !local[dir].there() {
				delete(push, dir)
				pull[dir] = true
			}
		}
	}
	return plan{pull: slices.Sorted(maps.Keys(pull)), push: slices.Sorted(maps.Keys(push))}
}

// State is what is stored to continue with the same sandbox later.
type State struct {
	Inside string          `json:"inside"`
	Base   map[string]pair `json:"base"`
}

// State returns the common state of the two sides at the last Sync.
func (f *Folder) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return State{Inside: f.o.Inside, Base: maps.Clone(f.base)}
}

// Restore takes the state that another Folder of the same two sides returned.
func (f *Folder) Restore(s State) error {
	if s.Inside != f.o.Inside {
		return fmt.Errorf("the sandbox has the folder at %s, not at %s", s.Inside, f.o.Inside)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.base = maps.Clone(s.Base)
	if f.base == nil {
		f.base = map[string]pair{}
	}
	return nil
}

// Holds reports whether a path on this host is in the folder, and returns its path in the
// sandbox.
func (f *Folder) Holds(local string) (inside string, ok bool) {
	return under(local, f.o.Local, f.o.Inside)
}

// Lies is the opposite of Holds.
func (f *Folder) Lies(inside string) (local string, ok bool) {
	return under(inside, f.o.Inside, f.o.Local)
}

func under(name, from, to string) (string, bool) {
	rest, ok := strings.CutPrefix(name, from)
	if !ok || rest != "" && !strings.HasPrefix(rest, "/") {
		return "", false
	}
	return to + rest, true
}
