package gvisor

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gvisor.dev/gvisor/pkg/cleanup"
	"gvisor.dev/gvisor/runsc/sandbox"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
	"github.com/bothy-dev/bothy/engine/process"
)

// A vessel is a sentry that runs nothing yet, with all that belongs to it: a
// folder, a network namespace with a tap, a cgroup. Its name is that of the
// folder, the cgroup, and the sandbox that the library knows. A machine that was
// started without a spare has its own id as name.
type vessel struct {
	e       *Engine
	name    string
	kind    bothy.MachineSpec
	dir     string
	sentry  program
	uid     int // the sentry's user and group on the host
	tap     *os.File
	packets *os.File // the sentry's end of the cable, until it has it
	told    *os.File // see spawn
	group   *cgroup.Group
	birth   *birth
	sb      *sandbox.Sandbox
	// destroy ends the sentry and frees all that it has.
	destroy func()
}

// makeVessel spawns a sentry. On failure nothing is left.
func (e *Engine) makeVessel(name string, spec bothy.MachineSpec, sentry program) (_ *vessel, err error) {
	v := &vessel{e: e, name: name, kind: spec.Kind(), dir: filepath.Join(e.dir, name), sentry: sentry}
	e.hold(name)
	undo := cleanup.Make(func() { e.unhold(name) })
	defer undo.Clean()
	if err := os.Mkdir(v.dir, 0o711); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, engine.Conflict(name)
		}
		return nil, err
	}
	undo.Add(func() { os.RemoveAll(v.dir) })
	if v.uid, err = e.uids.Take(v.dir); err != nil {
		return nil, err
	}
	undo.Add(func() { e.uids.Release(v.uid, v.dir) })
	cable, err := e.nets.New()
	if err != nil {
		return nil, err
	}
	defer cable.Namespace.Close()
	v.tap, v.packets = cable.Tap, cable.Socket
	undo.Add(func() { v.tap.Close(); v.packets.Close() })

	undo.Add(func() { v.birth.end() })
	// The kernel and process 1 start with all the CPU there is: nothing of a
	// user's runs before SetLimits.
	if v.group, err = e.cgroups.Create(name, unhurried(spec.Limits)); err != nil {
		return nil, err
	}
	undo.Add(func() { v.group.Kill(); v.group.Remove() })
	if !e.off[tuning.Birth] {
		v.birth = newborn.begin(v.group)
	}
	if v.sb, v.told, err = e.spawn(v, spec, cable.Namespace); err != nil {
		return nil, err
	}
	undo.Add(func() { v.told.Close() })
	undo.Add(func() { process.End(v.sb.Getpid()) })
	v.destroy = undo.Release()
	return v, nil
}

func (e *Engine) hold(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held[name] = true
}

func (e *Engine) unhold(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.held, name)
}

// sparePrefix begins the names of spares. Machines that were made from them
// keep it.
const sparePrefix = "spare-"

func spareName() string { return sparePrefix + strings.ToLower(rand.Text()[:16]) }

// Prepare spawns a sentry for a machine that is not asked for yet.
func (e *Engine) Prepare(ctx context.Context, spec bothy.MachineSpec) error {
	spec.ID, spec.FilesTar = "", ""
	sentry, err := e.sentryOf(nil)
	if err != nil {
		return err
	}
	v, err := e.makeVessel(spareName(), spec, sentry)
	if err != nil {
		return engine.StartError("gVisor", "engine.prepare", err)
	}
	v.birth.end()
	if err := ctx.Err(); err != nil {
		v.destroy()
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spares = append(e.spares, v)
	return nil
}

// takeSpare returns a living spare of a kind, or nil.
func (e *Engine) takeSpare(kind bothy.MachineSpec) *vessel {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := 0; i < len(e.spares); {
		v := e.spares[i]
		if v.kind != kind {
			i++
			continue
		}
		e.spares = append(e.spares[:i:i], e.spares[i+1:]...)
		if process.Alive(v.sb.Getpid()) {
			return v
		}
		e.log.Warn("a spare sentry has ended by itself", "last_words", lastWords(v.dir))
		go v.destroy()
	}
	return nil
}

// Spares counts them by kind.
func (e *Engine) Spares() []bothy.Spare {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []bothy.Spare
next:
	for _, v := range e.spares {
		for i := range list {
			if list[i].Kind == v.kind {
				list[i].Count++
				continue next
			}
		}
		list = append(list, bothy.Spare{Kind: v.kind, Count: 1})
	}
	return list
}

// KeepSpares ends all but so many of each kind.
func (e *Engine) KeepSpares(_ context.Context, keep []bothy.Spare) error {
	left := map[bothy.MachineSpec]int{}
	for _, k := range keep {
		left[k.Kind] += k.Count
	}
	var going []*vessel
	e.mu.Lock()
	staying := e.spares[:0:0]
	for _, v := range e.spares {
		if left[v.kind] > 0 {
			left[v.kind]--
			staying = append(staying, v)
		} else {
			going = append(going, v)
		}
	}
	e.spares = staying
	e.mu.Unlock()
	for _, v := range going {
		v.destroy()
	}
	return nil
}
