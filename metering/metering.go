// Package metering counts what projects use, second by second, and enforces their budgets.
// lifecycle tells it when sandboxes start and stop running; server gives it a store.
//
// Each running sandbox has a mark: the time up to which it has been counted. Counts and mark are
// stored in one transaction, so that after a crash of the server no time is counted twice, and
// only the time after the last mark can be lost. Time is measured by the monotonic clock; the
// wall clock only says which hour it belongs to.
package metering

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/keylock"
	"github.com/bothy-dev/bothy/store"
)

// Options are the parts of a Meter. All are required unless they say otherwise.
type Options struct {
	Store store.Usage
	// Sandbox finds a sandbox in any state, to attribute its snapshots.
	Sandbox func(ctx context.Context, id string) (*store.Sandbox, error)
	// Snapshots and Templates list all that exist.
	Snapshots func(ctx context.Context) ([]*bothy.Snapshot, error)
	Templates func(ctx context.Context) ([]*store.Template, error)
	// Project returns CodeProjectNotFound for an unknown project.
	Project func(ctx context.Context, id string) error
	Rates   bothy.Rates
	// Storage reports whether this server counts snapshots and templates; of several that share
	// the store, one counts them for all. Optional.
	Storage func() bool
	// Every is how often running sandboxes are counted, and StorageEvery how
	// often snapshots and templates are: 10 s and 60 s when zero.
	Every        time.Duration
	StorageEvery time.Duration
	// WarnAt is the share of a budget at which a warning is sent; 0.8 when zero.
	WarnAt float64
	// Clock is the host's when nil.
	Clock Clock
	Log   *slog.Logger
}

// Host carries out what budgets demand. Its methods may take long.
type Host interface {
	// PauseOverBudget pauses the running sandboxes of a project, or, with a
	// root, those of that sandbox's tree.
	PauseOverBudget(ctx context.Context, project, root string)
	// EmitEvent records an event.
	EmitEvent(ctx context.Context, typ, project, sandbox string, data map[string]string)
}

// Meter implements bothy.UsageService and what lifecycle and access need of it.
type Meter struct {
	o     Options
	clock Clock
	log   *slog.Logger
	boot  string // makes batch ids unique to this server

	// flushing is held while writing, and while a sum must include unwritten counts. It is taken
	// before any other lock.
	flushing sync.Mutex
	// asking limits the number of concurrent queries: they slow down the store for everyone.
	asking  chan struct{}
	turns   keylock.Locks
	queue   []store.UsageBatch // being written, oldest first; under flushing
	batches int                // under flushing

	// putting is held while a budget is stored, so that memory and store agree.
	putting sync.Mutex

	mu      sync.Mutex
	spans   map[string]*span
	left    map[string]store.UsageMark // of the last server, until Recovered
	due     map[string]*due
	stored  *storedDue
	budgets map[budgetID]*budget
	storage storage
	failing failing
	written store.Moment // the time up to which everything has been written
	lastAll store.Moment
	host    Host

	enforcing sync.WaitGroup
}

// due is what has to be written for one sandbox.
type due struct {
	rows map[rowKey]store.Counts
	mark bool
	gone bool
}

// storedDue is what has to be written for snapshots and templates.
type storedDue struct {
	rows map[rowKey]store.Counts
	at   store.Moment
}

type rowKey struct {
	store.UsageKey
	hour int64
}

// failing is the time since which nothing could be written.
type failing struct {
	since time.Time
	said  time.Time
	err   error
}

// New continues where the last server stopped.
func New(ctx context.Context, o Options) (*Meter, error) {
	if o.Clock == nil {
		o.Clock = HostClock()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	setDefault(&o.Every, 10*time.Second)
	setDefault(&o.StorageEvery, time.Minute)
	setDefault(&o.WarnAt, 0.8)
	var boot [8]byte
	if _, err := rand.Read(boot[:]); err != nil {
		return nil, err
	}
	m := &Meter{
		o: o, clock: o.Clock, log: o.Log, boot: hex.EncodeToString(boot[:]),
		asking: make(chan struct{}, maxAsking), spans: map[string]*span{}, left: map[string]store.UsageMark{}, due: map[string]*due{}, budgets: map[budgetID]*budget{},
	}
	now := m.now()
	p, err := o.Store.UsageProgress(ctx)
	if err != nil {
		return nil, err
	}
	for _, mark := range p.Marks {
		m.left[mark.Sandbox] = mark
	}
	m.lastAll, m.written = now, stale(now)
	m.storage = newStorage(p.Storage, now)
	return m, m.loadBudgets(ctx)
}

// stale returns the time before which what was written is too old for an answer.
func stale(now store.Moment) store.Moment {
	now.Wall, now.Uptime = now.Wall.Add(-fresh), now.Uptime-fresh
	return now
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// now has a resolution of a millisecond, the unit in which everything is counted.
func (m *Meter) now() store.Moment {
	now := m.clock.Now()
	now.Wall = now.Wall.UTC().Truncate(time.Millisecond)
	now.Uptime = now.Uptime.Truncate(time.Millisecond)
	return now
}

// Serve makes host carry out what budgets demand, from the next Tick on.
func (m *Meter) Serve(host Host) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.host = host
}

// look is how often to check whether there is something to write, or a budget to check.
const look = time.Second

// Run counts and writes until ctx ends.
func (m *Meter) Run(ctx context.Context) {
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			m.Tick(ctx)
		}
	}
}

// Close counts and writes a last time. The sandboxes keep running.
func (m *Meter) Close(ctx context.Context) error {
	m.countAll(ctx)
	err := m.flush(ctx)
	m.enforcing.Wait()
	return err
}

// Tick does what is due. Run calls it every second.
func (m *Meter) Tick(ctx context.Context) {
	now := m.now()
	m.mu.Lock()
	all := elapsed(m.lastAll, now) >= m.o.Every
	m.mu.Unlock()
	stored := m.countStorage(ctx)
	switch {
	case all:
		now = m.countAll(ctx)
		if m.flush(ctx) == nil {
			m.hasWritten(now)
		}
	case stored || m.Health() != nil:
		_ = m.flush(ctx) // which has reported what is wrong
	}
	if !all {
		m.count(ctx, false, func(s *span) bool { return s.key.Root != "" || m.bounded(s.key.Project) })
	}
	if m.o.Storage != nil && all {
		m.reloadBudgets(ctx)
	}
	m.watchBudgets(ctx)
}

func (m *Meter) hasWritten(upTo store.Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written = upTo
}

// countAll counts every running sandbox, up to the moment of its return or later.
func (m *Meter) countAll(ctx context.Context) store.Moment {
	now := m.now()
	m.count(ctx, true, func(*span) bool { return true })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastAll = now
	return now
}

// count counts some sandboxes: with their counters, or, which is quicker, only the elapsed time.
func (m *Meter) count(ctx context.Context, counters bool, which func(*span) bool) {
	m.mu.Lock()
	list := make([]*span, 0, len(m.spans))
	for _, s := range m.spans {
		if which(s) {
			list = append(list, s)
		}
	}
	m.mu.Unlock()
	for _, s := range list {
		s.mu.Lock()
		m.countSpan(ctx, s, counters)
		s.mu.Unlock()
	}
}

// Health returns nil, or what an operator must know: usage that cannot be written is kept in
// memory, and lost if the server ends before that.
func (m *Meter) Health() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing.err == nil {
		return nil
	}
	return fmt.Errorf("usage could not be written since %s and is kept in memory: %w", m.failing.since.Format(time.RFC3339), m.failing.err)
}

// Unwritten is how long ago everything was last written.
func (m *Meter) Unwritten() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return elapsed(m.written, m.now())
}

// rowsPerBatch bounds the sandboxes of one transaction: others wait for it.
const rowsPerBatch = 64

// flush writes everything due. What cannot be written remains due.
func (m *Meter) flush(ctx context.Context) error {
	m.flushing.Lock()
	defer m.flushing.Unlock()
	err := m.drain(ctx)
	if err == nil {
		m.take()
		err = m.drain(ctx)
	}
	if ctx.Err() == nil { // not just because the server is stopping
		m.note(err)
	}
	return err
}

// drain writes the queue. It is called with flushing held.
func (m *Meter) drain(ctx context.Context) error {
	for len(m.queue) > 0 {
		if err := m.o.Store.WriteUsage(ctx, m.queue[0]); err != nil {
			return err
		}
		m.queue = m.queue[1:]
	}
	return nil
}

// take moves what is due to the queue. It is called with flushing held.
func (m *Meter) take() {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b store.UsageBatch
	n := 0
	push := func() {
		if len(b.Rows)+len(b.Marks)+len(b.Gone) == 0 && b.Storage == nil {
			return
		}
		m.batches++
		b.ID = fmt.Sprintf("%s-%d", m.boot, m.batches)
		m.queue = append(m.queue, b)
		b, n = store.UsageBatch{}, 0
	}
	for id, d := range m.due {
		for k, c := range d.rows {
			b.Rows = append(b.Rows, store.UsageRow{UsageKey: k.UsageKey, Hour: k.hour, Counts: c})
		}
		if s := m.spans[id]; s != nil && d.mark {
			b.Marks = append(b.Marks, s.mark(id))
		} else if d.gone {
			b.Gone = append(b.Gone, id)
		}
		if n++; n == rowsPerBatch {
			push()
		}
	}
	push()
	clear(m.due)
	if m.stored != nil {
		for k, c := range m.stored.rows {
			b.Rows = append(b.Rows, store.UsageRow{UsageKey: k.UsageKey, Hour: k.hour, Counts: c})
		}
		at := m.stored.at
		b.Storage = &at
		push()
		m.stored = nil
	}
}

// sayAgain is how often a persisting failure is logged.
const sayAgain = time.Minute

func (m *Meter) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil && m.failing.err != nil:
		m.log.Info("usage can be written again", "after", now.Sub(m.failing.since).Round(time.Second).String())
		m.failing = failing{}
	case err != nil:
		if m.failing.err == nil {
			m.failing.since = now
		}
		m.failing.err = err
		if now.Sub(m.failing.said) >= sayAgain {
			m.failing.said = now
			m.log.Error("usage cannot be written; it is kept in memory and retried, and sandboxes keep running", "error", err)
		}
	}
}

// dueOf is called with m.mu held.
func (m *Meter) dueOf(id string) *due {
	d := m.due[id]
	if d == nil {
		d = &due{rows: map[rowKey]store.Counts{}}
		m.due[id] = d
	}
	return d
}

const (
	// maxKeyLabels and maxLabelBytes limit how much of a sandbox's metadata is kept, since every
	// label costs rows.
	maxKeyLabels  = 16
	maxLabelBytes = 256
)

// labels encodes metadata in the form that usage is stored by: the first keys in alphabetical
// order, with values that are not too long.
func labels(metadata map[string]string) string {
	kept := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if len(kept) < maxKeyLabels && len(key) <= maxLabelBytes && len(metadata[key]) <= maxLabelBytes {
			kept[key] = metadata[key]
		}
	}
	if len(kept) == 0 {
		return ""
	}
	b, err := json.Marshal(kept) // with sorted keys
	if err != nil {
		return ""
	}
	return string(b)
}
