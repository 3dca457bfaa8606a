package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/record"
)

// PutSnapshot implements store.Store.
func (s *Store) PutSnapshot(ctx context.Context, n *bothy.Snapshot) error {
	text, err := record.EncodeSnapshot(n)
	if err != nil {
		return fmt.Errorf("store: put snapshot %s: %w", n.ID, err)
	}
	_, err = s.exec(ctx, "put snapshot", s.stmt.putSnapshot, n.ID, n.ProjectID, n.SandboxID, n.Name, nanos(n.CreatedAt), n.SizeBytes, text)
	return err
}

// AddSnapshot implements store.Store. One statement adds up the others and adds this one, and
// there is one writer.
func (s *Store) AddSnapshot(ctx context.Context, n *bothy.Snapshot, q store.SnapshotQuota) error {
	if q.Bytes == 0 {
		return s.PutSnapshot(ctx, n)
	}
	text, err := record.EncodeSnapshot(n)
	if err != nil {
		return fmt.Errorf("store: add snapshot %s: %w", n.ID, err)
	}
	added, err := s.execCount(ctx, "add snapshot", s.stmt.addSnapshot, n.ID, n.ProjectID, n.SandboxID, n.Name, nanos(n.CreatedAt), n.SizeBytes, text, q.Replaced, q.Bytes)
	if err != nil || added > 0 {
		return err
	}
	_, used, err := s.SnapshotSum(ctx, n.ProjectID)
	return cmp.Or(err, error(&store.OverQuota{Used: used}))
}

// SetSnapshotDurable implements store.Store. One statement compares and changes.
func (s *Store) SetSnapshotDurable(ctx context.Context, id string, d bothy.Durable) (n *bothy.Snapshot, changed bool, err error) {
	rows, err := s.execCount(ctx, "record where a snapshot is kept", s.stmt.setSnapshotDurable, string(d), id)
	if err != nil {
		return nil, false, err
	}
	if n, err = s.Snapshot(ctx, id); err != nil {
		return nil, false, err
	}
	return n, rows > 0, nil
}

// Snapshot implements store.Store.
func (s *Store) Snapshot(ctx context.Context, id string) (*bothy.Snapshot, error) {
	var text string
	err := s.stmt.snapshot.QueryRowContext(ctx, id).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, bothy.NoSnapshot(id)
	}
	if err != nil {
		return nil, fmt.Errorf("store: get snapshot %s: %w", id, err)
	}
	return record.DecodeSnapshot(text)
}

// Snapshots implements store.Store.
func (s *Store) Snapshots(ctx context.Context, projectID string, f bothy.SnapshotFilter) (bothy.Page[*bothy.Snapshot], error) {
	var q selection
	q.add("project = ?", projectID)
	if f.SandboxID != "" {
		q.add("sandbox_id = ?", f.SandboxID)
	}
	if f.Name != "" {
		q.add("name = ?", f.Name)
	}
	if err := q.after(f.Cursor); err != nil {
		return bothy.Page[*bothy.Snapshot]{}, err
	}
	limit := record.PageSize(f.Limit)
	text, args := q.query("record", "snapshots", limit)
	rows, err := s.read.QueryContext(ctx, text, args...)
	items, err := collect("list snapshots", rows, err, decoded(record.DecodeSnapshot))
	if err != nil {
		return bothy.Page[*bothy.Snapshot]{}, err
	}
	return record.Page(items, limit, func(n *bothy.Snapshot) string { return record.Cursor(n.CreatedAt, n.ID) }), nil
}

// AllSnapshots implements store.Store.
func (s *Store) AllSnapshots(ctx context.Context) ([]*bothy.Snapshot, error) {
	rows, err := s.stmt.allSnapshots.QueryContext(ctx)
	return collect("list all snapshots", rows, err, decoded(record.DecodeSnapshot))
}

// OwnSnapshots implements store.Store.
func (s *Store) OwnSnapshots(ctx context.Context) ([]*bothy.Snapshot, error) {
	return s.AllSnapshots(ctx)
}

// SnapshotSum implements store.Store.
func (s *Store) SnapshotSum(ctx context.Context, projectID string) (count int, bytes int64, err error) {
	of, args := s.stmt.snapshotSum, []any{projectID}
	if projectID == "" {
		of, args = s.stmt.snapshotSumAll, nil
	}
	if err := of.QueryRowContext(ctx, args...).Scan(&count, &bytes); err != nil {
		return 0, 0, fmt.Errorf("store: add up snapshots: %w", err)
	}
	return count, bytes, nil
}

// DeleteSnapshot implements store.Store.
func (s *Store) DeleteSnapshot(ctx context.Context, id string) error {
	n, err := s.execReserved(ctx, "delete snapshot", s.stmt.deleteSnapshot, id)
	if err == nil && n == 0 {
		return bothy.NoSnapshot(id)
	}
	return err
}
