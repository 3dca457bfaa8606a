package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bothy-dev/bothy"
)

// agentsRecord is what the `record` column of agents holds.
type agentsRecord struct {
	bothy.AgentAttachment
	ProjectID string `json:"_project,omitempty"`
	Sealed    []byte `json:"_sealed,omitempty"`
}

// PutAgents implements store.Store.
func (s *Store) PutAgents(ctx context.Context, a *bothy.AgentAttachment) error {
	kept := agentsRecord{AgentAttachment: *a, ProjectID: a.ProjectID, Sealed: a.Sealed}
	kept.State, kept.LastError, kept.Sessions = "", "", nil
	record, err := encode(kept)
	if err != nil {
		return fmt.Errorf("store: put agents %s: %w", a.ID, err)
	}
	_, err = s.exec(ctx, "put agents", s.stmt.putAgents, a.ID, a.ProjectID, nanos(a.CreatedAt), record)
	return err
}

// Agents implements store.Store.
func (s *Store) Agents(ctx context.Context, projectID string) ([]*bothy.AgentAttachment, error) {
	rows, err := s.stmt.agents.QueryContext(ctx, projectID)
	if err != nil {
		return nil, fmt.Errorf("store: list agents: %w", err)
	}
	defer rows.Close()
	var out []*bothy.AgentAttachment
	for rows.Next() {
		var record string
		if err := rows.Scan(&record); err != nil {
			return nil, fmt.Errorf("store: list agents: %w", err)
		}
		var r agentsRecord
		if err := json.Unmarshal([]byte(record), &r); err != nil {
			return nil, fmt.Errorf("store: list agents: %w", err)
		}
		a := r.AgentAttachment
		a.ProjectID, a.Sealed = r.ProjectID, r.Sealed
		out = append(out, &a)
	}
	return out, rows.Err()
}

// DeleteAgents implements store.Store.
func (s *Store) DeleteAgents(ctx context.Context, projectID, id string) error {
	n, err := s.execCount(ctx, "delete agents", s.stmt.deleteAgents, projectID, id)
	if err != nil {
		return err
	}
	if n == 0 {
		return bothy.Errorf(bothy.CodeNotFound, "no environment is attached as %q", id).WithHint("List what is attached with `bothy agents ls`.")
	}
	_, err = s.exec(ctx, "delete agent sessions", s.stmt.deleteAgentSessions, id)
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
	_, err := s.exec(ctx, "delete agent session", s.stmt.deleteAgentSession, attachment, session)
	return err
}
