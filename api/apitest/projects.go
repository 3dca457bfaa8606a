package apitest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// Projects is a bothy.ProjectService.
type Projects struct {
	mu   sync.Mutex
	list []*bothy.Project
}

func (p *Projects) find(ctx context.Context, id string) (*bothy.Project, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeAdmin); err != nil {
		return nil, err
	}
	for _, x := range p.list {
		if x.ID == id {
			return x, nil
		}
	}
	return nil, bothy.Errorf(bothy.CodeProjectNotFound, "there is no project %q", id).WithHint("List them.")
}

// CreateProject implements bothy.ProjectService.
func (p *Projects) CreateProject(ctx context.Context, req bothy.ProjectCreate) (*bothy.Project, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.find(ctx, req.ID); err == nil {
		return nil, bothy.Errorf(bothy.CodeConflict, "the project %q already exists", req.ID).WithHint("Choose another name.")
	} else if bothy.ErrorCode(err) != bothy.CodeProjectNotFound {
		return nil, err
	}
	x := &bothy.Project{ID: req.ID, Plan: req.Plan, CreatedAt: time.Unix(1000, 0).UTC()}
	p.list = append(p.list, x)
	return x, nil
}

// Project implements bothy.ProjectService.
func (p *Projects) Project(ctx context.Context, id string) (*bothy.Project, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.find(ctx, id)
}

// Projects implements bothy.ProjectService.
func (p *Projects) Projects(ctx context.Context) ([]*bothy.Project, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.list)
	slices.SortFunc(all, func(a, b *bothy.Project) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// UpdateProject implements bothy.ProjectService.
func (p *Projects) UpdateProject(ctx context.Context, id string, u bothy.ProjectUpdate) (*bothy.Project, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, err := p.find(ctx, id)
	if err == nil && u.Plan != nil {
		x.Plan = *u.Plan
	}
	return x, err
}
