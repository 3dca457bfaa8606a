package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
)

// AddProject implements store.Store.
func (s *Store) AddProject(ctx context.Context, p *bothy.Project) error {
	n, err := s.execCount(ctx, "add project", s.stmt.addProject, p.ID, p.Plan, nanos(p.CreatedAt))
	if err == nil && n == 0 {
		return bothy.Errorf(bothy.CodeConflict, "the project %q already exists", p.ID).WithHint("Choose another name, or change that project.")
	}
	return err
}

// SetPlan implements store.Store.
func (s *Store) SetPlan(ctx context.Context, id, plan string) error {
	n, err := s.execCount(ctx, "set the plan of a project", s.stmt.setPlan, plan, id)
	if err == nil && n == 0 {
		return bothy.NoProject(id)
	}
	return err
}

// Project implements store.Store.
func (s *Store) Project(ctx context.Context, id string) (*bothy.Project, error) {
	p, err := scanProject(s.stmt.project.QueryRowContext(ctx, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, bothy.NoProject(id)
	}
	return p, err
}

// Projects implements store.Store.
func (s *Store) Projects(ctx context.Context) ([]*bothy.Project, error) {
	rows, err := s.stmt.projects.QueryContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("store: list projects: %w", err)
	}
	defer rows.Close()
	var out []*bothy.Project
	for rows.Next() {
		p, err := scanProject(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, rows.Err()
}

func scanProject(row interface{ Scan(...any) error }) (*bothy.Project, error) {
	var p bothy.Project
	var created int64
	if err := row.Scan(&p.ID, &p.Plan, &created); err != nil {
		return nil, fmt.Errorf("store: read project: %w", err)
	}
	p.CreatedAt = time.Unix(0, created).UTC()
	return &p, nil
}
