// Package warm prepares machines ahead of demand: ready machines, golden snapshots and
// prespawned machines. It follows recent demand, makes one thing at a time while no request
// waits, and gives things up first when memory is short.
package warm

import (
	"context"
	"log/slog"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/engines"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// Dependencies configure a Pool.
type Dependencies struct {
	Options
	// Known looks up templates.
	Known    templateFinder
	Engines  *engines.Set
	Machines *instance.Machines
	// Busy counts the queued and starting sandboxes, and FreeMemoryMB returns the host's
	// available memory.
	Busy         func() int
	FreeMemoryMB func() int
	// RestoreMemory starts a machine from a template's memory, and returns the key that its
	// guest has.
	RestoreMemory func(ctx context.Context, sb *store.Sandbox, t *store.Template, snapshotID string) (bothy.Machine, string, error)
	// Shared says that images may be only on other hosts.
	Shared bool
	// GuestImage and CABundle are part of every sandbox, so golden snapshots depend on them.
	GuestImage string
	CABundle   string
	Clock      bothy.Clock
	Log        *slog.Logger
	// Background ends with the service.
	Background context.Context
}

// templateFinder finds templates by name or digest.
type templateFinder interface {
	Lookup(name string) (*store.Template, error)
	// LookupFor also fetches the image if only other hosts have it.
	LookupFor(ctx context.Context, project, name string) (*store.Template, error)
}

// Pool prepares machines ahead of demand.
type Pool struct {
	o       Dependencies
	pool    *pool
	goldens *goldens
}

func New(o Dependencies) *Pool {
	return &Pool{o: o, pool: newPool(), goldens: newGoldens(o)}
}

// Off reports whether nothing is to be prepared.
func (s *Pool) Off() bool { return s.o.ReadyMax == 0 && s.o.Spares == 0 && s.o.GoldenMax == 0 }

// Poke makes the pool check whether something is to be prepared.
func (s *Pool) Poke() { s.pool.poke() }

// Touch pauses the pool for a moment.
func (s *Pool) Touch() { s.pool.touch() }

// Asked records a request for a machine, with the given memory snapshot of a template if any.
// create distinguishes new sandboxes from resumed ones.
func (s *Pool) Asked(sb *store.Sandbox, t *store.Template, memory string, create bool) {
	s.pool.asked(classOf(sb, memory), t, s.o.Clock.Now(), create)
}

// Forget discards demand for what depends on a deleted snapshot.
func (s *Pool) Forget(snapshotID string) { s.pool.forget(snapshotID) }

// RanCode records that code was run in a sandbox of the template with this digest.
func (s *Pool) RanCode(digest string) { s.pool.ranCode(digest, s.o.Clock.Now()) }

// Try restores the memory of a template in a machine that is discarded afterwards. files is the
// template with its files.
func (s *Pool) Try(ctx context.Context, m *bothy.TemplateMemory, files *store.Template) error {
	l, err := s.prepare(ctx, memoryClass(m), files)
	s.Discard(l)
	return err
}
