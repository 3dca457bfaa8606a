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

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/process"
)

// preparedSentry is a started sentry with its folder, network namespace, tap and cgroup,
// but no container. Its folder, its cgroup and the library's sandbox share its name. A
// machine that was started without a spare uses its own id as the name.
type preparedSentry struct {
	e       *Engine
	name    string
	kind    bothy.MachineSpec
	dir     string
	sentry  program
	uid     int // the sentry's user and group on the host
	tap     *os.File
	packets *os.File // the sentry's end of the network device, until it is handed over
	notify  *os.File // see spawn
	group   *cgroup.Group
	sb      *sentry
	// destroy ends the sentry and frees everything it holds.
	destroy func()
}

// prepareSentry spawns a sentry. On failure nothing is left.
func (e *Engine) prepareSentry(name string, spec bothy.MachineSpec, sentry program) (_ *preparedSentry, err error) {
	p := &preparedSentry{e: e, name: name, kind: spec.Kind(), dir: filepath.Join(e.dir, name), sentry: sentry}
	e.hold(name)
	undo := cleanup.Make(func() { e.releaseName(name) })
	defer undo.Clean()
	if err := os.Mkdir(p.dir, 0o711); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, engine.Conflict(name)
		}
		return nil, err
	}
	undo.Add(func() { os.RemoveAll(p.dir) })
	if p.uid, err = e.uids.Take(p.dir); err != nil {
		return nil, err
	}
	undo.Add(func() { e.uids.Release(p.uid, p.dir) })
	dev, err := e.nets.New()
	if err != nil {
		return nil, err
	}
	defer dev.Namespace.Close()
	p.tap, p.packets = dev.Tap, dev.Socket
	undo.Add(func() { p.tap.Close(); p.packets.Close() })

	// The kernel and process 1 start with all processors: no user code runs before SetLimits.
	if p.group, err = e.cgroups.Create(name, startLimits(spec.Limits)); err != nil {
		return nil, err
	}
	undo.Add(func() { p.group.Kill(); p.group.Remove() })
	if p.sb, p.notify, err = e.spawn(p, spec, dev.Namespace); err != nil {
		return nil, err
	}
	undo.Add(func() { p.notify.Close() })
	undo.Add(func() { process.End(p.sb.pid) })
	p.destroy = undo.Release()
	return p, nil
}

func (e *Engine) hold(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held[name] = true
}

func (e *Engine) releaseName(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.held, name)
}

// sparePrefix begins the names of spares, and of the machines made from them.
const sparePrefix = "spare-"

func spareName() string { return sparePrefix + strings.ToLower(rand.Text()[:16]) }

// Prepare spawns a sentry ahead of demand.
func (e *Engine) Prepare(ctx context.Context, spec bothy.MachineSpec) error {
	spec.ID, spec.FilesTar = "", ""
	sentry, err := e.sentryOf(nil)
	if err != nil {
		return err
	}
	p, err := e.prepareSentry(spareName(), spec, sentry)
	if err != nil {
		return engine.StartError("gVisor", "engine.prepare", err)
	}
	if err := ctx.Err(); err != nil {
		p.destroy()
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spares = append(e.spares, p)
	return nil
}

// takeSpare returns a live spare of a kind, or nil.
func (e *Engine) takeSpare(kind bothy.MachineSpec) *preparedSentry {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := 0; i < len(e.spares); {
		p := e.spares[i]
		if p.kind != kind {
			i++
			continue
		}
		e.spares = append(e.spares[:i:i], e.spares[i+1:]...)
		if process.Alive(p.sb.pid) {
			return p
		}
		e.log.Warn("a spare sentry has ended by itself", "panic_output", panicOutput(p.dir))
		go p.destroy()
	}
	return nil
}

// Spares counts the spare sentries by kind.
func (e *Engine) Spares() []bothy.Spare {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []bothy.Spare
next:
	for _, p := range e.spares {
		for i := range list {
			if list[i].Kind == p.kind {
				list[i].Count++
				continue next
			}
		}
		list = append(list, bothy.Spare{Kind: p.kind, Count: 1})
	}
	return list
}

// KeepSpares destroys all spare sentries beyond the given number of each kind.
func (e *Engine) KeepSpares(_ context.Context, keep []bothy.Spare) error {
	left := map[bothy.MachineSpec]int{}
	for _, k := range keep {
		left[k.Kind] += k.Count
	}
	var going []*preparedSentry
	e.mu.Lock()
	staying := e.spares[:0:0]
	for _, p := range e.spares {
		if left[p.kind] > 0 {
			left[p.kind]--
			staying = append(staying, p)
		} else {
			going = append(going, p)
		}
	}
	e.spares = staying
	e.mu.Unlock()
	for _, p := range going {
		p.destroy()
	}
	return nil
}
