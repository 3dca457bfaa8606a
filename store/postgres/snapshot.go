package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/record"
)

// takenAt is the value of the column taken_at for a snapshot that is as old as the given parameter says.
func takenAt(age string) string { return databaseNow + ` - ` + age + `::bigint` }

// ageOf is how long ago a snapshot was taken, by the clock of the host that took it: this one.
func (s *Store) ageOf(n *bothy.Snapshot) int64 { return max(0, int64(s.now().Sub(n.CreatedAt))) }

// snapshotAge is how long ago a snapshot was taken, in nanoseconds, by the database's clock; NULL where that
// is unknown.
const snapshotAge = databaseNow + ` - taken_at`

// timed scans a record and snapshotAge. The time of the snapshot becomes what this host's clock would
// have said.
func (s *Store) timed(row pgx.CollectableRow) (*bothy.Snapshot, error) {
	var text string
	var age *int64
	if err := row.Scan(&text, &age); err != nil {
		return nil, err
	}
	n, err := record.DecodeSnapshot(text)
	if err == nil && age != nil {
		n.CreatedAt = s.now().Add(-time.Duration(*age)).UTC()
	}
	return n, err
}

// TimedSnapshot implements store.Hosts.
func (s *Store) TimedSnapshot(ctx context.Context, id string) (*bothy.Snapshot, error) {
	n, found, err := first(ctx, s, "get snapshot", `SELECT record, `+snapshotAge+` FROM snapshots WHERE id = $1`, []any{id}, s.timed)
	if err == nil && !found {
		return nil, bothy.NoSnapshot(id)
	}
	return n, err
}

// PutSnapshot implements store.Store.
func (s *Store) PutSnapshot(ctx context.Context, n *bothy.Snapshot) error {
	text, err := record.EncodeSnapshot(n)
	if err != nil {
		return fmt.Errorf("store: put snapshot %s: %w", n.ID, err)
	}
	_, err = s.change(ctx, "put snapshot", whole, do(`INSERT INTO snapshots (id, project, sandbox_id, name, created_at, bytes, record, host, taken_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, `+takenAt("$9")+`)
		ON CONFLICT (id) DO UPDATE SET project = excluded.project, sandbox_id = excluded.sandbox_id,
		name = excluded.name, created_at = excluded.created_at, bytes = excluded.bytes, record = excluded.record`,
		n.ID, n.ProjectID, n.SandboxID, n.Name, nanos(n.CreatedAt), n.SizeBytes, text, s.member.Name, s.ageOf(n)))
	return err
}

// AddSnapshot implements store.Store. Who adds one to a project holds a lock of that project's to
// the commit, so that the statement which adds up the others counts those before it.
func (s *Store) AddSnapshot(ctx context.Context, n *bothy.Snapshot, q store.SnapshotQuota) error {
	if q.Bytes == 0 {
		return s.PutSnapshot(ctx, n)
	}
	text, err := record.EncodeSnapshot(n)
	if err != nil {
		return fmt.Errorf("store: add snapshot %s: %w", n.ID, err)
	}
	added, err := s.change(ctx, "add snapshot", whole,
		do(`SELECT pg_advisory_xact_lock(hashtextextended('snapshots ' || $1::text, 0))`, n.ProjectID),
		do(`INSERT INTO snapshots (id, project, sandbox_id, name, created_at, bytes, record, host, taken_at)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::bigint, $6::bigint, $7::text, $8::text, `+takenAt("$11")+`
		WHERE greatest(0, (SELECT coalesce(sum(bytes), 0) FROM snapshots WHERE project = $2::text AND id <> $1::text) - $9::bigint) + $6::bigint <= $10::bigint
		ON CONFLICT (id) DO UPDATE SET project = excluded.project, sandbox_id = excluded.sandbox_id,
		name = excluded.name, created_at = excluded.created_at, bytes = excluded.bytes, record = excluded.record`,
			n.ID, n.ProjectID, n.SandboxID, n.Name, nanos(n.CreatedAt), n.SizeBytes, text, s.member.Name, q.Replaced, q.Bytes, s.ageOf(n)))
	if err != nil || added > 0 {
		return err
	}
	_, used, err := s.SnapshotSum(ctx, n.ProjectID)
	return cmp.Or(err, error(&store.OverQuota{Used: used}))
}

// SetSnapshotDurable implements store.Store. The row's lock makes reading and writing one step.
func (s *Store) SetSnapshotDurable(ctx context.Context, id string, d bothy.Durable) (n *bothy.Snapshot, changed bool, err error) {
	err = s.transaction(ctx, "record where a snapshot is kept", whole, func(ctx context.Context, tx pgx.Tx) error {
		changed = false
		var text string
		err := tx.QueryRow(ctx, `SELECT record FROM snapshots WHERE id = $1 FOR UPDATE`, id).Scan(&text)
		if errors.Is(err, pgx.ErrNoRows) {
			return bothy.NoSnapshot(id)
		}
		if err != nil {
			return err
		}
		if n, err = record.DecodeSnapshot(text); err != nil || n.Durable == d {
			return err
		}
		n.Durable = d
		if text, err = record.EncodeSnapshot(n); err != nil {
			return err
		}
		changed = true
		_, err = tx.Exec(ctx, `UPDATE snapshots SET record = $2 WHERE id = $1`, id, text)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return n, changed, nil
}

// Snapshot implements store.Store.
func (s *Store) Snapshot(ctx context.Context, id string) (*bothy.Snapshot, error) {
	n, found, err := first(ctx, s, "get snapshot", `SELECT record FROM snapshots WHERE id = $1`, []any{id}, decoded(record.DecodeSnapshot))
	if err == nil && !found {
		return nil, bothy.NoSnapshot(id)
	}
	return n, err
}

// Snapshots implements store.Store.
func (s *Store) Snapshots(ctx context.Context, projectID string, f bothy.SnapshotFilter) (p bothy.Page[*bothy.Snapshot], err error) {
	var q selection
	q.add("project = ?", projectID)
	if f.SandboxID != "" {
		q.add("sandbox_id = ?", f.SandboxID)
	}
	if f.Name != "" {
		q.add("name = ?", f.Name)
	}
	if err := q.after(f.Cursor); err != nil {
		return p, err
	}
	limit := record.PageSize(f.Limit)
	text, args := q.query("record", "snapshots", limit)
	items, err := list(ctx, s, "list snapshots", text, args, decoded(record.DecodeSnapshot))
	if err != nil {
		return p, err
	}
	return record.Page(items, limit, func(n *bothy.Snapshot) string { return record.Cursor(n.CreatedAt, n.ID) }), nil
}

// AllSnapshots implements store.Store.
func (s *Store) AllSnapshots(ctx context.Context) ([]*bothy.Snapshot, error) {
	return list(ctx, s, "list all snapshots", `SELECT record FROM snapshots ORDER BY created_at DESC, id DESC`, nil, decoded(record.DecodeSnapshot))
}

// OwnSnapshots implements store.Store.
func (s *Store) OwnSnapshots(ctx context.Context) ([]*bothy.Snapshot, error) {
	if !s.shared() {
		return s.AllSnapshots(ctx)
	}
	return list(ctx, s, "list snapshots", `SELECT record FROM snapshots WHERE host = $1 ORDER BY created_at DESC, id DESC`,
		[]any{s.member.Name}, decoded(record.DecodeSnapshot))
}

// SnapshotSum implements store.Store.
func (s *Store) SnapshotSum(ctx context.Context, projectID string) (count int, bytes int64, err error) {
	_, _, err = first(ctx, s, "add up snapshots", `SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM snapshots WHERE project = $1 OR $1 = ''`,
		[]any{projectID}, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, row.Scan(&count, &bytes) })
	return count, bytes, err
}

// DeleteSnapshot implements store.Store.
func (s *Store) DeleteSnapshot(ctx context.Context, id string) error {
	n, err := s.change(ctx, "delete snapshot", once, do(`DELETE FROM snapshots WHERE id = $1`, id))
	if err == nil && n == 0 {
		return bothy.NoSnapshot(id)
	}
	return err
}
