package access

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// ProjectStore is what Projects needs of store.Store.
type ProjectStore interface {
	AddProject(ctx context.Context, p *bothy.Project) error
	SetPlan(ctx context.Context, id, plan string) error
	Project(ctx context.Context, id string) (*bothy.Project, error)
	Projects(ctx context.Context) ([]*bothy.Project, error)
}

// Projects is the bothy.ProjectService over a store. This process must be the
// only one that changes the projects in it: their plans are cached.
type Projects struct {
	store ProjectStore
	now   func() time.Time

	budgets Budgets // nil before UseBudgets

	mu    sync.RWMutex
	plans map[string]bothy.Plan
}

// Budgets enforces the budgets of projects.
type Budgets interface {
	// CheckBudget refuses an invalid budget; 0 is none.
	CheckBudget(amount float64) error
	SetProjectBudget(ctx context.Context, project string, amount float64) error
	// ProjectBudget returns nil if there is none.
	ProjectBudget(project string) *bothy.BudgetState
}

// UseBudgets enables budgets for projects. It must be called first.
func (p *Projects) UseBudgets(b Budgets) { p.budgets = b }

func (p *Projects) checkBudget(amount float64) error {
	if p.budgets != nil {
		return p.budgets.CheckBudget(amount)
	}
	if amount == 0 {
		return nil
	}
	return bothy.Errorf(bothy.CodeUnsupported, "this server has no budgets").WithHint("Leave budget out.")
}

// withBudget fills in the current budget of a project.
func (p *Projects) withBudget(x *bothy.Project, err error) (*bothy.Project, error) {
	if err == nil && p.budgets != nil {
		x.Budget = p.budgets.ProjectBudget(x.ID)
	}
	return x, err
}

var _ bothy.ProjectService = (*Projects)(nil)

// NewProjects returns the projects in a store, and creates the default one if
// it is missing.
func NewProjects(ctx context.Context, s ProjectStore, now func() time.Time) (*Projects, error) {
	p := &Projects{store: s, now: now, plans: map[string]bothy.Plan{}}
	_, err := s.Project(ctx, bothy.DefaultProject)
	if bothy.ErrorCode(err) == bothy.CodeProjectNotFound {
		err = s.AddProject(ctx, &bothy.Project{ID: bothy.DefaultProject, Plan: bothy.PlanUnlimited, CreatedAt: now().UTC()})
	}
	return p, err
}

// Plan returns a project's plan. A project that was not created has the default plan.
func (p *Projects) Plan(ctx context.Context, id string) (bothy.Plan, error) {
	p.mu.RLock()
	plan, ok := p.plans[id]
	p.mu.RUnlock()
	if ok {
		return plan, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := bothy.DefaultPlan
	x, err := p.store.Project(ctx, id)
	switch {
	case err == nil:
		name = x.Plan
	case bothy.ErrorCode(err) != bothy.CodeProjectNotFound:
		return bothy.Plan{}, err
	}
	plan, ok = bothy.Plans[name]
	if !ok { // written by a newer server
		plan = bothy.Plans[bothy.DefaultPlan]
	}
	p.plans[id] = plan
	return plan, nil
}

// CreateProject implements bothy.ProjectService.
func (p *Projects) CreateProject(ctx context.Context, req bothy.ProjectCreate) (*bothy.Project, error) {
	if err := operator(ctx); err != nil {
		return nil, err
	}
	if !projectName.MatchString(req.ID) {
		return nil, badProjectName(req.ID)
	}
	if req.Plan == "" {
		req.Plan = bothy.DefaultPlan
	}
	if err := checkPlan(req.Plan); err != nil {
		return nil, err
	}
	if err := p.checkBudget(req.Budget); err != nil {
		return nil, err
	}
	x := &bothy.Project{ID: req.ID, Plan: req.Plan, CreatedAt: p.now().UTC()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.store.AddProject(ctx, x); err != nil {
		return nil, err
	}
	delete(p.plans, req.ID)
	if req.Budget != 0 {
		if err := p.budgets.SetProjectBudget(ctx, req.ID, req.Budget); err != nil {
			return nil, err
		}
	}
	return p.withBudget(x, nil)
}

// Project implements bothy.ProjectService.
func (p *Projects) Project(ctx context.Context, id string) (*bothy.Project, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	if !caller.IsOperator() && caller.ProjectID != id {
		return nil, bothy.NoProject(id)
	}
	return p.withBudget(p.store.Project(ctx, id))
}

// Projects implements bothy.ProjectService.
func (p *Projects) Projects(ctx context.Context) ([]*bothy.Project, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	if caller.IsOperator() {
		all, err := p.store.Projects(ctx)
		for _, x := range all {
			_, _ = p.withBudget(x, nil)
		}
		return all, err
	}
	own, err := p.withBudget(p.store.Project(ctx, caller.ProjectID))
	if bothy.ErrorCode(err) == bothy.CodeProjectNotFound {
		return nil, nil
	}
	return []*bothy.Project{own}, err
}

// UpdateProject implements bothy.ProjectService.
func (p *Projects) UpdateProject(ctx context.Context, id string, u bothy.ProjectUpdate) (*bothy.Project, error) {
	if err := operator(ctx); err != nil {
		return nil, err
	}
	if u.Budget != nil {
		if err := p.checkBudget(*u.Budget); err != nil {
			return nil, err
		}
	}
	x, err := p.store.Project(ctx, id)
	if err != nil {
		return nil, err
	}
	before := x.Plan
	if u.Plan != nil {
		if err := p.setPlan(ctx, id, *u.Plan); err != nil {
			return nil, err
		}
		x.Plan = *u.Plan
	}
	if u.Budget != nil && p.budgets != nil {
		if err = p.budgets.SetProjectBudget(ctx, id, *u.Budget); err != nil && u.Plan != nil {
			// All of it, or nothing.
			err = errors.Join(err, p.setPlan(context.WithoutCancel(ctx), id, before))
		}
	}
	return p.withBudget(x, err)
}

func (p *Projects) setPlan(ctx context.Context, id, plan string) error {
	if err := checkPlan(plan); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.store.SetPlan(ctx, id, plan); err != nil {
		return err
	}
	delete(p.plans, id)
	return nil
}

// operator checks that the caller is an admin of the default project.
func operator(ctx context.Context) error {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err == nil && !caller.IsOperator() {
		err = bothy.Errorf(bothy.CodeForbidden, "only the project %q manages projects", bothy.DefaultProject).
			WithHint("Ask the operator of this server.")
	}
	return err
}

func checkPlan(name string) error {
	if _, ok := bothy.Plans[name]; !ok {
		return bothy.Errorf(bothy.CodeInvalid, "there is no plan %q", name).WithHint("The plans are %s.", bothy.PlanNames())
	}
	return nil
}

func badProjectName(id string) error {
	return bothy.Errorf(bothy.CodeInvalid, "project %q is not a project name", id).
		WithHint("Use up to 63 lower-case letters, digits, dashes and underscores.")
}
