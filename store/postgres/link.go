package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/record"
)

// addLink locks the rows of the token and the sandbox until the link is stored, so that a
// concurrent end of either one either sees the link or prevents it.
const addLink = `WITH token AS MATERIALIZED (SELECT 1 FROM tokens WHERE id = $4 FOR SHARE),
	sandbox AS MATERIALIZED (SELECT 1 FROM sandboxes WHERE id = $3 AND state NOT IN ('stopped', 'failed') FOR SHARE)
	INSERT INTO links (id, project, sandbox_id, token_id, created_at, expires_at, record)
	SELECT $1, $2, $3, $4, $5::bigint, $6::bigint, $7 FROM token, sandbox
	WHERE ($8::bigint = 0 OR (SELECT count(*) FROM links WHERE project = $2) < $8::bigint)
	AND ($9::bigint = 0 OR (SELECT count(*) FROM links WHERE sandbox_id = $3) < $9::bigint)`

// AddLink implements store.Store. A lock of the project's until the commit has the statement
// count the links that others have added before.
func (s *Store) AddLink(ctx context.Context, l *bothy.Link, b store.LinkBounds) error {
	text, err := record.EncodeLink(l)
	if err != nil {
		return fmt.Errorf("store: add link %s: %w", l.ID, err)
	}
	n, err := s.change(ctx, "add link", once,
		do(`SELECT pg_advisory_xact_lock(hashtextextended('links ' || $1::text, 0))`, l.ProjectID),
		do(addLink, l.ID, l.ProjectID, l.SandboxID, l.TokenID, nanos(l.CreatedAt), nanos(l.ExpiresAt), text, b.Project, b.Sandbox))
	if err == nil && n == 0 {
		project, sandbox, err := s.CountLinks(ctx, l.ProjectID, l.SandboxID)
		if err := cmp.Or(err, b.Exceeded(project, sandbox)); err != nil {
			return err
		}
		return bothy.Errorf(bothy.CodeConflict, "the sandbox %s has ended, or the key that requested the link was revoked", l.SandboxID).
			WithHint("Create a sandbox or a key, and try again.")
	}
	return err
}

// Link implements store.Store.
func (s *Store) Link(ctx context.Context, id string) (*bothy.Link, error) {
	l, found, err := first(ctx, s, "get link", `SELECT record FROM links WHERE id = $1`, []any{id}, decoded(record.DecodeLink))
	if err == nil && !found {
		return nil, noLink(id)
	}
	return l, err
}

func noLink(id string) error {
	return bothy.Errorf(bothy.CodeNotFound, "there is no link %q", id).
		WithHint("List the links of a sandbox with `bothy link ls` or GET /v1/sandboxes/{id}/links.")
}

// Links implements store.Store.
func (s *Store) Links(ctx context.Context, sandboxID string) ([]*bothy.Link, error) {
	return list(ctx, s, "list links", `SELECT record FROM links WHERE sandbox_id = $1 ORDER BY created_at DESC, id DESC`,
		[]any{sandboxID}, decoded(record.DecodeLink))
}

// CountLinks implements store.Store.
func (s *Store) CountLinks(ctx context.Context, projectID, sandboxID string) (project, sandbox int, err error) {
	_, _, err = first(ctx, s, "count links", `SELECT count(*), count(*) FILTER (WHERE sandbox_id = $1) FROM links WHERE project = $2`,
		[]any{sandboxID, projectID}, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, row.Scan(&project, &sandbox) })
	return project, sandbox, err
}

// DeleteLink implements store.Store.
func (s *Store) DeleteLink(ctx context.Context, sandboxID, id string) error {
	n, err := s.change(ctx, "delete link", once, do(`DELETE FROM links WHERE sandbox_id = $1 AND id = $2`, sandboxID, id))
	if err == nil && n == 0 {
		return noLink(id)
	}
	return err
}

// DeleteLinksExpiredBefore implements store.Store.
func (s *Store) DeleteLinksExpiredBefore(ctx context.Context, t time.Time) (int, error) {
	return s.change(ctx, "forget links", whole, do(`DELETE FROM links WHERE expires_at < $1`, nanos(t)))
}
