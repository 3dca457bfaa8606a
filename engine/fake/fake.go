// Package fake is an in-memory engine, for quick tests of everything above it.
// Its machines have a network stack at the sandbox's address. They run nothing, unless the
// test gives them an inside, such as one of package engine/fake/folder. Only tests use it.
package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine"
)

// Name is the engine's name in requests.
const Name = "fake"

// Host is where machines live. Engines on the same host find each other's, as
// a server finds those of the one before it.
type Host struct {
	// Boot, if set, makes the inside of every machine, with the files of a tar. By default
	// only the guest's port is open, and closes what connects.
	Boot func(id string, files io.Reader) (Inside, error)
	// StartDelay is awaited by every start, so that tests can interrupt it.
	StartDelay time.Duration
	// FailStart, if set, decides whether a start fails.
	FailStart func(id string) error
	// Destroying, if set, is awaited before a machine is destroyed.
	Destroying func(id string)
	// Limiting, if set, decides whether a machine takes new limits.
	Limiting func(id string, l bothy.Limits) error
	// FailRestore, if set, decides whether a restore fails.
	FailRestore func(id string) error
	// Adopting, Snapshotting and Thawing, if set, are awaited before a machine is
	// adopted, written or thawed, and may fail that.
	Adopting     func(ctx context.Context, id string) error
	Snapshotting func(ctx context.Context, id string) error
	Thawing      func(ctx context.Context, id string) error

	mu       sync.Mutex
	machines map[string]*Machine
	spares   map[string]spare
	prepared int
}

// Inside is what runs in a machine: its files, and the servers on its ports, of which one is
// the guest.
type Inside interface {
	Dial(port uint16) (net.Conn, error)
	// Save writes the files as a tar.
	Save(w io.Writer) error
	// Close ends all that runs.
	Close() error
}

// spare is a machine that only the engine that made it knows about.
type spare struct {
	by   *Engine
	kind bothy.MachineSpec
}

// Machine finds a machine by its id, without side effects. It returns nil if
// there is none.
func (h *Host) Machine(id string) *Machine {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machines[id]
}

// IDs lists the machines that live.
func (h *Host) IDs() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.machines))
}

// Engine implements bothy.Engine.
type Engine struct {
	host *Host
	info bothy.EngineInfo
	held map[string]bool // under host.mu
}

var (
	_ bothy.Engine   = (*Engine)(nil)
	_ bothy.Preparer = (*Engine)(nil)
)

// New returns an engine on a host. Snapshots are bound to the build.
func New(h *Host, build string) *Engine {
	return As(h, bothy.EngineInfo{Name: Name, Build: build, Kernel: "fake", Snapshots: true})
}

// As returns an engine with the given info. Two engines with different names do
// not share a host.
func As(h *Host, info bothy.EngineInfo) *Engine {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.machines == nil {
		h.machines, h.spares = map[string]*Machine{}, map[string]spare{}
	}
	return &Engine{host: h, info: info, held: map[string]bool{}}
}

// Info returns the info that the engine was created with.
func (e *Engine) Info() bothy.EngineInfo { return e.info }

// Check finds nothing missing.
func (e *Engine) Check(context.Context) error { return nil }

// Start makes a machine.
func (e *Engine) Start(ctx context.Context, spec bothy.MachineSpec) (bothy.Machine, error) {
	return machine(e.start(ctx, spec, ""))
}

func checkImages(spec bothy.MachineSpec) error {
	for _, image := range []string{spec.RootFS, spec.Guest} {
		if _, err := os.Stat(image); err != nil {
			return bothy.Errorf(bothy.CodeTemplateInvalid, "the image %s cannot be opened", filepath.Base(image)).Because(err)
		}
	}
	return nil
}

// machine keeps a nil pointer from becoming an interface that is not nil.
func machine(m *Machine, err error) (bothy.Machine, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (e *Engine) start(ctx context.Context, spec bothy.MachineSpec, restored string) (*Machine, error) {
	if err := checkImages(spec); err != nil {
		return nil, err
	}
	if f := e.host.FailStart; f != nil {
		if err := f(spec.ID); err != nil {
			return nil, err
		}
	}
	select {
	case <-time.After(e.host.StartDelay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	inside, err := e.host.boot(spec, restored)
	if err != nil {
		return nil, err
	}
	m := newMachine(e, spec)
	m.restored, m.inside = restored, inside
	if err := e.add(m); err != nil {
		return nil, errors.Join(err, m.turnOff())
	}
	return m, nil
}

// add lets a machine live on the host. It takes a spare of its kind.
func (e *Engine) add(m *Machine) error {
	spec := m.spec
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	if e.host.machines[spec.ID] != nil && !spec.AllowConcurrent {
		return engine.Conflict(spec.ID)
	}
	for name, x := range e.host.spares {
		if x.by == e && x.kind == spec.Kind() {
			delete(e.host.spares, name)
			break
		}
	}
	m.replaced = e.host.machines[spec.ID]
	e.host.machines[spec.ID] = m
	e.held[spec.ID] = true
	return nil
}

// boot makes the inside of a machine, if the test wants one.
func (h *Host) boot(spec bothy.MachineSpec, restored string) (Inside, error) {
	if h.Boot == nil {
		return nil, nil
	}
	tar := spec.FilesTar
	if restored != "" {
		tar = filepath.Join(restored, filesName)
	}
	if tar == "" {
		return h.Boot(spec.ID, strings.NewReader(emptyTar))
	}
	f, err := os.Open(tar)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return h.Boot(spec.ID, f)
}

// emptyTar is a tar of no files.
var emptyTar = strings.Repeat("\x00", 1024)

// filesName is the tar of a machine's files in a snapshot's folder.
const filesName = "files.tar"

type snapshot struct {
	Build string    `json:"build"`
	Taken time.Time `json:"taken"`
	// Stuck makes Restore hang for ever, as damaged memory may.
	Stuck bool `json:"stuck,omitempty"`
}

// Restore makes a machine from what Snapshot wrote.
func (e *Engine) Restore(ctx context.Context, spec bothy.MachineSpec, dir string) (bothy.Machine, error) {
	b, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeSnapshotDamaged, "the snapshot has no state").Because(err)
	}
	var s snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, bothy.Errorf(bothy.CodeSnapshotDamaged, "the snapshot's state cannot be read").Because(err)
	}
	if s.Stuck {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.Build != e.info.Build {
		return nil, bothy.Errorf(bothy.CodeUnsupported, "the snapshot was made by build %s", s.Build).Because(bothy.ErrMemoryUnusable)
	}
	if f := e.host.FailRestore; f != nil {
		if err := f(spec.ID); err != nil {
			return nil, err
		}
	}
	return machine(e.start(ctx, spec, dir))
}

// Prepare makes a spare.
func (e *Engine) Prepare(_ context.Context, spec bothy.MachineSpec) error {
	if err := checkImages(spec); err != nil {
		return err
	}
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	e.host.prepared++
	e.host.spares[fmt.Sprint("spare-", e.host.prepared)] = spare{e, spec.Kind()}
	return nil
}

// Spares counts the spares by kind.
func (e *Engine) Spares() []bothy.Spare {
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	count := map[bothy.MachineSpec]int{}
	for _, x := range e.host.spares {
		if x.by == e {
			count[x.kind]++
		}
	}
	var list []bothy.Spare
	for kind, n := range count {
		list = append(list, bothy.Spare{Kind: kind, Count: n})
	}
	return list
}

// KeepSpares ends all but n spares of each kind.
func (e *Engine) KeepSpares(_ context.Context, keep []bothy.Spare) error {
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	left := map[bothy.MachineSpec]int{}
	for _, k := range keep {
		left[k.Kind] += k.Count
	}
	for name, x := range e.host.spares {
		if x.by != e {
			continue
		}
		if left[x.kind]--; left[x.kind] < 0 {
			delete(e.host.spares, name)
		}
	}
	return nil
}

// Adopt finds a machine on the host.
func (e *Engine) Adopt(ctx context.Context, id string, _ []byte) (bothy.Machine, error) {
	if e.host.Adopting != nil {
		if err := e.host.Adopting(ctx, id); err != nil {
			return nil, err
		}
	}
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	if m := e.host.machines[id]; m != nil {
		e.held[id] = true
		return m, m.setFrozen(false)
	}
	return nil, bothy.Errorf(bothy.CodeNotFound, "the machine of sandbox %s is gone", id)
}

// Sweep ends the machines that this engine does not hold and the caller does not keep.
func (e *Engine) Sweep(ctx context.Context, keep func(string) bool) ([]string, error) {
	e.host.mu.Lock()
	var swept []string
	var ended []*Machine
	for id, m := range e.host.machines {
		if !e.held[id] && !keep(id) {
			swept = append(swept, id)
			ended = append(ended, m)
		}
	}
	for name, x := range e.host.spares {
		if x.by != e && !keep(name) {
			delete(e.host.spares, name)
			swept = append(swept, name)
		}
	}
	e.host.mu.Unlock()
	for _, m := range ended {
		if err := m.Destroy(ctx); err != nil {
			return swept, fmt.Errorf("sweep %s: %w", m.ID(), err)
		}
	}
	slices.Sort(swept)
	return swept, nil
}
