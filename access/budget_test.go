package access_test

import (
	"context"
	"testing"

	"github.com/bothy-dev/bothy"
)

// purse records budgets.
type purse map[string]float64

func (p purse) CheckBudget(amount float64) error { return bothy.CheckBudget(amount) }

func (p purse) SetProjectBudget(_ context.Context, project string, amount float64) error {
	p[project] = amount
	return nil
}

func (p purse) ProjectBudget(project string) *bothy.BudgetState {
	if p[project] == 0 {
		return nil
	}
	return &bothy.BudgetState{Limit: p[project], Currency: "EUR"}
}

func TestProjectsHaveBudgets(t *testing.T) {
	p, _, w := newProjects(t)
	budgets := purse{}
	p.UseBudgets(budgets)
	x, err := p.CreateProject(w.admin, bothy.ProjectCreate{ID: "blue", Budget: 5})
	if err != nil || x.Budget == nil || x.Budget.Limit != 5 {
		t.Fatalf("created %+v, %v", x, err)
	}
	if x, err = p.UpdateProject(w.admin, "blue", bothy.ProjectUpdate{Budget: new(7.5)}); err != nil || x.Budget.Limit != 7.5 || x.Plan != bothy.DefaultPlan {
		t.Errorf("updated to %+v, %v", x, err)
	}
	if x, err = p.Project(as("blue", bothy.ScopeAdmin), "blue"); err != nil || x.Budget.Limit != 7.5 {
		t.Errorf("the project sees %+v, %v", x, err)
	}
	all, err := p.Projects(w.admin)
	if err != nil || len(all) != 2 || all[0].Budget.Limit != 7.5 || all[1].Budget != nil {
		t.Errorf("listed %+v, %v", all, err)
	}
	for _, amount := range []float64{-1, 1e13} {
		_, err = p.UpdateProject(w.admin, "blue", bothy.ProjectUpdate{Budget: &amount})
		wantErr(t, "a budget that is none", err, bothy.CodeInvalid)
		_, err = p.CreateProject(w.admin, bothy.ProjectCreate{ID: "red", Budget: amount})
		wantErr(t, "a budget that is none", err, bothy.CodeInvalid)
	}
	_, err = p.UpdateProject(w.admin, "none", bothy.ProjectUpdate{Budget: new(1.0)})
	wantErr(t, "a project that there is not", err, bothy.CodeProjectNotFound)
	_, err = p.UpdateProject(as("blue", bothy.ScopeAdmin), "blue", bothy.ProjectUpdate{Budget: new(1e6)})
	wantErr(t, "a tenant", err, bothy.CodeForbidden)
	if x, err = p.UpdateProject(w.admin, "blue", bothy.ProjectUpdate{Budget: new(0.0)}); err != nil || x.Budget != nil {
		t.Errorf("lifted: %+v, %v", x, err)
	}
	if len(budgets) != 1 {
		t.Errorf("there are budgets of %v", budgets)
	}
}

func TestServerWithoutBudgets(t *testing.T) {
	p, _, w := newProjects(t)
	_, err := p.CreateProject(w.admin, bothy.ProjectCreate{ID: "blue", Budget: 5})
	wantErr(t, "a budget", err, bothy.CodeUnsupported)
}
