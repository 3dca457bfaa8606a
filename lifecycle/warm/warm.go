// Package warm answers what is made ahead of demand: ready machines, golden snapshots and
// prespawned machines. It follows what was asked for lately, makes one thing at a time
// while no request waits, and gives things up first when memory is short.
package warm

import (
	"context"
	"log/slog"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/engines"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// Dependencies are what the pool is made of.
type Dependencies struct {
	Options
	// Known finds templates.
	Known    templateFinder
	Engines  *engines.Set
	Machines *instance.Machines
	// Busy counts the sandboxes that wait or are starting, and FreeMemoryMB tells what
	// the host has left.
	Busy         func() int
	FreeMemoryMB func() int
	// RestoreMemory starts a machine from the processes of a template, and returns the key
	// that its guest knows already.
	RestoreMemory func(ctx context.Context, sb *store.Sandbox, t *bothy.Template, snapshotID string) (bothy.Machine, string, error)
	// Shared are the golden snapshots that other hosts have; nil where this one is alone.
	Shared SharedGoldens
	// GuestImage and CABundle are what every sandbox is given, and so part of what a
	// golden snapshot depends on.
	GuestImage string
	CABundle   string
	Clock      bothy.Clock
	Log        *slog.Logger
	// Background ends with the service.
	Background context.Context
}

// SharedGoldens are golden snapshots that hosts have in common.
type SharedGoldens interface {
	// Fetch writes the files of one into an empty folder; CodeNotFound where no host has told
	// of it. Its manifest is the one that a host has told of.
	Fetch(ctx context.Context, name, dir string) error
	// Made tells the other hosts of one that this host has.
	Made(name string)
}

// templateFinder finds templates, by name or by digest.
type templateFinder interface {
	Lookup(name string) (*bothy.Template, error)
}

// Pool makes machines ahead of demand.
type Pool struct {
	o       Dependencies
	pool    *pool
	goldens *goldens
}

func New(o Dependencies) *Pool {
	return &Pool{o: o, pool: newPool(), goldens: newGoldens(o)}
}

// Off reports whether nothing is made.
func (s *Pool) Off() bool { return s.o.ReadyMax == 0 && s.o.Spares == 0 && s.o.GoldenMax == 0 }

// Poke has the pool look whether something is to be made.
func (s *Pool) Poke() { s.pool.poke() }

// Touch keeps the pool quiet for a moment.
func (s *Pool) Touch() { s.pool.touch() }

// Asked notes that a machine was asked for: with the processes of a template's memory, if
// that snapshot is given. create tells new sandboxes from those that are resumed.
func (s *Pool) Asked(sb *store.Sandbox, t *bothy.Template, memory string, create bool) {
	s.pool.asked(classOf(sb, memory), t, s.o.Clock.Now(), create)
}

// Forget gives up what was made of a snapshot that is gone.
func (s *Pool) Forget(snapshotID string) { s.pool.forget(snapshotID) }

// RanCode notes that code was run in a sandbox of the template with this digest.
func (s *Pool) RanCode(digest string) { s.pool.ranCode(digest, s.o.Clock.Now()) }

// Try wakes the memory of a template in a machine that is not handed out, and ends it again. files
// is the template that the processes run on.
func (s *Pool) Try(ctx context.Context, m *bothy.TemplateMemory, files *bothy.Template) error {
	l, err := s.prepare(ctx, memoryClass(m), files)
	s.Discard(l)
	return err
}
