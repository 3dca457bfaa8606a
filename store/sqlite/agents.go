package sqlite

import (
	"context"
	"fmt"

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
	_, err = s.exec(ctx, "put agents", s.stmt.putAgents, a.ID, a.ProjectID, nanos(a.CreatedAt), text)
	return err
}

// Agents implements store.Store.
func (s *Store) Agents(ctx context.Context, projectID string) ([]*store.AgentAttachment, error) {
	rows, err := s.stmt.agents.QueryContext(ctx, projectID)
	if err != nil {
		return nil, fmt.Errorf("store: list agents: %w", err)
	}
	defer rows.Close()
	var out []*store.AgentAttachment
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, fmt.Errorf("store: list agents: %w", err)
		}
		a, err := record.DecodeAgents(text)
		if err != nil {
			return nil, fmt.Errorf("store: list agents: %w", err)
		}
		out = append(out, a)
	}
	return out, rows.Err()
}

// DeleteAgents implements store.Store.
func (s *Store) DeleteAgents(ctx context.Context, projectID, id string) error {
	n, err := s.execReserved(ctx, "delete agents", s.stmt.deleteAgents, projectID, id)
	if err != nil {
		return err
	}
	if n == 0 {
		return bothy.Errorf(bothy.CodeNotFound, "no environment is attached as %q", id).WithHint("List what is attached with `bothy agents ls`.")
	}
	_, err = s.execReserved(ctx, "delete agent sessions", s.stmt.deleteAgentSessions, id)
	return err
}

// PutAgentSession implements store.Store.
func (s *Store) PutAgentSession(ctx context.Context, attachment, session string, record []byte) error {
	_, err := s.exec(ctx, "put agent session", s.stmt.putAgentSession, attachment, session, record)
	return err
}

// AgentSessions implements store.Store.
func (s *Store) AgentSessions(ctx context.Context, attachment string) (map[string][]byte, error) {
	rows, err := s.stmt.agentSessions.QueryContext(ctx, attachment)
	if err != nil {
		return nil, fmt.Errorf("store: list agent sessions: %w", err)
	}
	defer rows.Close()
	out := map[string][]byte{}
	for rows.Next() {
		var id string
		var record []byte
		if err := rows.Scan(&id, &record); err != nil {
			return nil, fmt.Errorf("store: list agent sessions: %w", err)
		}
		out[id] = record
	}
	return out, rows.Err()
}

// DeleteAgentSession implements store.Store.
func (s *Store) DeleteAgentSession(ctx context.Context, attachment, session string) error {
	_, err := s.execReserved(ctx, "delete agent session", s.stmt.deleteAgentSession, attachment, session)
	return err
}
