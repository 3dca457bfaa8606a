package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
)

// AddProject implements store.Store.
func (s *Store) AddProject(ctx context.Context, p *bothy.Project) error {
	n, err := s.change(ctx, "add project", once, do(`INSERT INTO projects (id, plan, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, p.ID, p.Plan, nanos(p.CreatedAt)))
	if err == nil && n == 0 {
		return bothy.Errorf(bothy.CodeConflict, "the project %q already exists", p.ID).WithHint("Choose another name, or change that project.")
	}
	return err
}

// SetPlan implements store.Store.
func (s *Store) SetPlan(ctx context.Context, id, plan string) error {
	n, err := s.change(ctx, "set the plan of a project", whole, do(`UPDATE projects SET plan = $1 WHERE id = $2`, plan, id))
	if err == nil && n == 0 {
		return bothy.NoProject(id)
	}
	return err
}

// Project implements store.Store.
func (s *Store) Project(ctx context.Context, id string) (*bothy.Project, error) {
	p, found, err := first(ctx, s, "get project", `SELECT id, plan, created_at FROM projects WHERE id = $1`, []any{id}, scanProject)
	if err == nil && !found {
		return nil, bothy.NoProject(id)
	}
	return p, err
}

// Projects implements store.Store.
func (s *Store) Projects(ctx context.Context) ([]*bothy.Project, error) {
	return list(ctx, s, "list projects", `SELECT id, plan, created_at FROM projects ORDER BY id`, nil, scanProject)
}

func scanProject(row pgx.CollectableRow) (*bothy.Project, error) {
	var p bothy.Project
	var created int64
	if err := row.Scan(&p.ID, &p.Plan, &created); err != nil {
		return nil, err
	}
	p.CreatedAt = time.Unix(0, created).UTC()
	return &p, nil
}
