package metering

import (
	"cmp"
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// storage holds the time up to which snapshots and templates have been counted. They take up
// space even while no server runs.
type storage struct {
	// mine is set while this server counts for all that share the store.
	mine bool
	at   store.Moment
	// known are those that existed then; others began later.
	known map[string]bool
	// gone are those that were deleted while others were being listed.
	gone map[string]bool
	// owners are the keys that a sandbox's snapshots are counted under.
	owners map[string]store.UsageKey
}

func newStorage(last *store.Moment, now store.Moment) storage {
	s := storage{at: now, known: map[string]bool{}, gone: map[string]bool{}, owners: map[string]store.UsageKey{}}
	if last != nil {
		ago := elapsed(*last, now)
		s.at.Wall, s.at.Uptime = now.Wall.Add(-ago), now.Uptime-ago
	}
	return s
}

// occupied is how long something has taken up space that has not been counted yet.
func (s *storage) occupied(id string, created time.Time, now store.Moment) time.Duration {
	d := elapsed(s.at, now)
	if s.known[id] {
		return d
	}
	return min(d, max(0, now.Wall.Sub(created).Truncate(time.Millisecond)))
}

// mb rounds up: anything takes up at least a MiB.
func mb(bytes int64) int64 { return max(1, (bytes+1<<20-1)>>20) }

// countStorage counts snapshots and templates, if that is due, and reports whether it was.
func (m *Meter) countStorage(ctx context.Context) bool {
	now := m.now()
	if m.o.Storage != nil && !m.mayCountStorage(ctx, now) {
		return false
	}
	m.mu.Lock()
	waits := elapsed(m.storage.at, now) < m.o.StorageEvery
	if !waits {
		clear(m.storage.gone)
	}
	m.mu.Unlock()
	if waits {
		return false
	}
	snapshots, err := m.o.Snapshots(ctx)
	if err != nil {
		m.log.Warn("snapshots cannot be listed for metering", "error", err)
		return false
	}
	templates, err := m.o.Templates(ctx)
	if err != nil {
		m.log.Warn("templates cannot be listed for metering", "error", err)
		return false
	}
	owners := make([]store.UsageKey, len(snapshots))
	for i, n := range snapshots {
		owners[i] = m.owner(ctx, n)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now = m.now()
	known, needed := map[string]bool{}, map[string]store.UsageKey{}
	due := m.storedDue()
	for i, n := range snapshots {
		needed[n.SandboxID] = m.storage.owners[n.SandboxID]
		if m.storage.gone[n.ID] {
			continue
		}
		known[n.ID] = true
		m.bookStorage(due, owners[i], store.Snapshots, mb(n.SizeBytes), m.storage.occupied(n.ID, n.CreatedAt, now), now)
	}
	for _, t := range templates {
		// An image with several tags is stored once.
		id := "template " + t.Project + " " + t.Name + " " + t.Digest
		if known[id] {
			continue
		}
		known[id] = true
		key := store.UsageKey{Project: cmp.Or(t.Project, bothy.DefaultProject), Template: t.Name}
		m.bookStorage(due, key, store.Templates, mb(t.SizeBytes), m.storage.occupied(id, t.CreatedAt, now), now)
	}
	m.storage.at, m.storage.known, m.storage.owners = now, known, needed
	due.at = now
	return true
}

// mayCountStorage reports whether this server counts for all hosts. One that takes over
// continues where the previous one stopped.
func (m *Meter) mayCountStorage(ctx context.Context, now store.Moment) bool {
	may := m.o.Storage()
	m.mu.Lock()
	was := m.storage.mine
	m.mu.Unlock()
	if may && !was {
		p, err := m.o.Store.UsageProgress(ctx)
		if err != nil {
			return false
		}
		m.mu.Lock()
		m.storage = newStorage(p.Storage, now)
		m.mu.Unlock()
	}
	m.mu.Lock()
	m.storage.mine = may
	m.mu.Unlock()
	return may
}

func (m *Meter) storedDue() *storedDue {
	if m.stored == nil {
		m.stored = &storedDue{rows: map[rowKey]store.Counts{}, at: m.storage.at}
	}
	return m.stored
}

func (m *Meter) bookStorage(due *storedDue, key store.UsageKey, meter int, size int64, d time.Duration, now store.Moment) {
	if d <= 0 {
		return
	}
	var c store.Counts
	c[meter] = size * d.Milliseconds()
	m.book(due.rows, key, now, d, c)
}

// owner returns the key for a snapshot's storage: its sandbox with its current labels, even if
// that has ended.
func (m *Meter) owner(ctx context.Context, n *bothy.Snapshot) store.UsageKey {
	m.mu.Lock()
	key, ok := m.storage.owners[n.SandboxID]
	if s := m.spans[n.SandboxID]; s != nil {
		key, ok = s.key, true
	}
	m.mu.Unlock()
	if !ok {
		key = store.UsageKey{Sandbox: n.SandboxID}
		if sb, err := m.o.Sandbox(ctx, n.SandboxID); err == nil && sb.ProjectID == n.ProjectID {
			key = keyOf(sb)
		}
		m.mu.Lock()
		m.storage.owners[n.SandboxID] = key
		m.mu.Unlock()
	}
	// An imported snapshot may name a sandbox of another project.
	if key.Project != n.ProjectID {
		key = store.UsageKey{Project: n.ProjectID, Sandbox: n.SandboxID}
	}
	key.Template = n.Template
	return key
}

// SnapshotDeleted counts a snapshot that has just been deleted for the last time.
func (m *Meter) SnapshotDeleted(ctx context.Context, n *bothy.Snapshot) {
	key := m.owner(ctx, n)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if m.o.Storage != nil && !m.storage.mine {
		return // the server that counts for all has done so until just now
	}
	d := m.storage.occupied(n.ID, n.CreatedAt, now)
	m.bookStorage(m.storedDue(), key, store.Snapshots, mb(n.SizeBytes), d, now)
	m.storage.gone[n.ID] = true
}
