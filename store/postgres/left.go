package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
)

// WithClusterLeft lets the last host of a cluster open the database by itself, to take the records out of
// it. The database stays the cluster's.
func WithClusterLeft() Option { return func(s *Store) { s.clusterLeft = true } }

// checkLeft returns an error if the database of a cluster has what this home's host does not: a host that
// uses it, or sandboxes or snapshots whose files are on another host.
func (s *Store) checkLeft(ctx context.Context, tx pgx.Tx) error {
	const others = `host <> '' AND host NOT IN (SELECT id FROM hosts WHERE home = $1)`
	for _, c := range []struct {
		query string
		err   func(host string, n int) *bothy.Error
	}{
		{
			`SELECT id, ceil(extract(epoch FROM until - clock_timestamp()))::int FROM hosts WHERE home <> $1 AND dead_at IS NULL AND until > clock_timestamp() ORDER BY until DESC LIMIT 1`,
			func(host string, n int) *bothy.Error {
				return bothy.Errorf(bothy.CodeConflict, "the host %s of the cluster uses the database", host).
					WithHint("Stop its server. A host that was stopped counts as one that uses it for %d seconds more.", n)
			},
		},
		{
			`SELECT host, count(*)::int FROM sandboxes WHERE state NOT IN ('stopped', 'failed') AND ` + others + ` GROUP BY host LIMIT 1`,
			func(host string, n int) *bothy.Error {
				return bothy.Errorf(bothy.CodeConflict, "the host %s of the cluster owns %d sandboxes", host, n).
					WithHint("Start the servers again, and move them here with `bothy host drain %s`, or end them.", host)
			},
		},
		{
			`SELECT host, count(*)::int FROM snapshots WHERE coalesce(record::jsonb->>'durable', '') <> '` + string(bothy.DurableStore) + `' AND ` + others + ` GROUP BY host LIMIT 1`,
			func(host string, n int) *bothy.Error {
				return bothy.Errorf(bothy.CodeConflict, "%d snapshots are only on the disk of the host %s of the cluster", n, host).
					WithHint("Start the servers again, export what is needed with `bothy snapshot export`, and delete them with `bothy snapshots rm`.")
			},
		},
	} {
		var host string
		var n int
		err := tx.QueryRow(ctx, c.query, s.home).Scan(&host, &n)
		if err == nil {
			return c.err(host, n)
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
	return nil
}
