package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/record"
)

// PutAgents implements store.Store.
func (s *Store) PutAgents(ctx context.Context, a *store.AgentAttachment) error {
	text, err := record.EncodeAgents(a)
	if err != nil {
		return fmt.Errorf("store: put agents %s: %w", a.ID, err)
	}
	_, err = s.change(ctx, "put agents", whole, do(`INSERT INTO agents (id, project, created_at, record) VALUES ($1, $2, $3, $4)
		ON CONFLICT (id) DO UPDATE SET record = excluded.record`, a.ID, a.ProjectID, nanos(a.CreatedAt), text))
	return err
}

// Agents implements store.Store.
func (s *Store) Agents(ctx context.Context, projectID string) ([]*store.AgentAttachment, error) {
	return list(ctx, s, "list agents", `SELECT record FROM agents WHERE $1 = '' OR project = $1 ORDER BY created_at, id`,
		[]any{projectID}, decoded(record.DecodeAgents))
}

// DeleteAgents implements store.Store.
func (s *Store) DeleteAgents(ctx context.Context, projectID, id string) error {
	var n int
	err := s.transaction(ctx, "delete agents", once, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM agents WHERE project = $1 AND id = $2`, clean([]any{projectID, id})...)
		if n = int(tag.RowsAffected()); err != nil || n == 0 {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM agent_sessions WHERE attachment = $1`, clean([]any{id})...)
		return err
	})
	if err == nil && n == 0 {
		return bothy.Errorf(bothy.CodeNotFound, "no environment is attached as %q", id).WithHint("List what is attached with `bothy agents ls`.")
	}
	return err
}

// PutAgentSession implements store.Store.
func (s *Store) PutAgentSession(ctx context.Context, attachment, session string, record []byte) error {
	_, err := s.change(ctx, "put agent session", light, do(`INSERT INTO agent_sessions (attachment, session, record) VALUES ($1, $2, $3)
		ON CONFLICT (attachment, session) DO UPDATE SET record = excluded.record`, attachment, session, record))
	return err
}

// AgentSessions implements store.Store.
func (s *Store) AgentSessions(ctx context.Context, attachment string) (map[string][]byte, error) {
	type session struct {
		id     string
		record []byte
	}
	all, err := list(ctx, s, "list agent sessions", `SELECT session, record FROM agent_sessions WHERE attachment = $1`, []any{attachment},
		func(row pgx.CollectableRow) (v session, err error) { return v, row.Scan(&v.id, &v.record) })
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, v := range all {
		out[v.id] = v.record
	}
	return out, nil
}

// DeleteAgentSession implements store.Store.
func (s *Store) DeleteAgentSession(ctx context.Context, attachment, session string) error {
	_, err := s.change(ctx, "delete agent session", light, do(`DELETE FROM agent_sessions WHERE attachment = $1 AND session = $2`, attachment, session))
	return err
}
