package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/record"
)

// AddLink implements store.Store.
func (s *Store) AddLink(ctx context.Context, l *bothy.Link, b store.LinkBounds) error {
	text, err := record.EncodeLink(l)
	if err != nil {
		return fmt.Errorf("store: add link %s: %w", l.ID, err)
	}
	n, err := s.execCount(ctx, "add link", s.stmt.addLink, l.ID, l.ProjectID, l.SandboxID, l.TokenID,
		nanos(l.CreatedAt), nanos(l.ExpiresAt), text, b.Project, b.Sandbox)
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
	var text string
	err := s.stmt.link.QueryRowContext(ctx, id).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, noLink(id)
	}
	if err != nil {
		return nil, fmt.Errorf("store: get link: %w", err)
	}
	return record.DecodeLink(text)
}

func noLink(id string) error {
	return bothy.Errorf(bothy.CodeNotFound, "there is no link %q", id).
		WithHint("List the links of a sandbox with `bothy link ls` or GET /v1/sandboxes/{id}/links.")
}

// Links implements store.Store.
func (s *Store) Links(ctx context.Context, sandboxID string) ([]*bothy.Link, error) {
	rows, err := s.stmt.links.QueryContext(ctx, sandboxID)
	if err != nil {
		return nil, fmt.Errorf("store: list links: %w", err)
	}
	defer rows.Close()
	var out []*bothy.Link
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, fmt.Errorf("store: list links: %w", err)
		}
		l, err := record.DecodeLink(text)
		if err != nil {
			return nil, fmt.Errorf("store: list links: %w", err)
		}
		out = append(out, l)
	}
	return out, rows.Err()
}

// CountLinks implements store.Store.
func (s *Store) CountLinks(ctx context.Context, projectID, sandboxID string) (project, sandbox int, err error) {
	if err := s.stmt.countLinks.QueryRowContext(ctx, sandboxID, projectID).Scan(&project, &sandbox); err != nil {
		return 0, 0, fmt.Errorf("store: count links: %w", err)
	}
	return project, sandbox, nil
}

// DeleteLink implements store.Store.
func (s *Store) DeleteLink(ctx context.Context, sandboxID, id string) error {
	n, err := s.execReserved(ctx, "delete link", s.stmt.deleteLink, sandboxID, id)
	if err == nil && n == 0 {
		return noLink(id)
	}
	return err
}

// DeleteLinksExpiredBefore implements store.Store.
func (s *Store) DeleteLinksExpiredBefore(ctx context.Context, t time.Time) (int, error) {
	return s.execCount(ctx, "forget links", s.stmt.forgetLinks, nanos(t))
}
