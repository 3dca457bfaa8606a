package access_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access"
	"github.com/bothy-dev/bothy/store/sqlite"
)

func newProjects(t *testing.T) (*access.Projects, *sqlite.Store, *world) {
	t.Helper()
	w := &world{at: start, admin: as("default", bothy.ScopeAdmin)}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "b.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p, err := access.NewProjects(t.Context(), db, w.now)
	if err != nil {
		t.Fatal(err)
	}
	return p, db, w
}

func wantErr(t *testing.T, what string, err error, code bothy.Code) {
	t.Helper()
	if got := bothy.ErrorCode(err); got != code {
		t.Errorf("%s: %v, want the code %q", what, err, code)
	}
}

func TestProjectsAndTheirPlans(t *testing.T) {
	p, db, w := newProjects(t)
	plan := func(id string) string {
		t.Helper()
		x, err := p.Plan(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return x.Name
	}
	if got := plan(bothy.DefaultProject); got != bothy.PlanUnlimited {
		t.Errorf("the operator's own project has the plan %s", got)
	}
	if got := plan("blue"); got != bothy.DefaultPlan {
		t.Errorf("before it is made the project has the plan %s", got)
	}
	if _, err := p.CreateProject(w.admin, bothy.ProjectCreate{ID: "blue", Plan: bothy.PlanPro}); err != nil {
		t.Fatal(err)
	}
	if got := plan("blue"); got != bothy.PlanPro {
		t.Errorf("the project has the plan %s", got)
	}
	team := bothy.PlanTeam
	if x, err := p.UpdateProject(w.admin, "blue", bothy.ProjectUpdate{Plan: &team}); err != nil || x.Plan != team {
		t.Fatalf("updated to %+v, %v", x, err)
	}
	if got := plan("blue"); got != team {
		t.Errorf("after the change it has the plan %s", got)
	}
	again, err := access.NewProjects(t.Context(), db, w.now)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := again.Projects(w.admin); err != nil || len(all) != 2 || all[0].ID != "blue" || all[1].Plan != bothy.PlanUnlimited {
		t.Errorf("after a restart there is %v, %v", all, err)
	}
}

func TestWhoManagesProjects(t *testing.T) {
	p, _, w := newProjects(t)
	for _, id := range []string{"blue", "red"} {
		if _, err := p.CreateProject(w.admin, bothy.ProjectCreate{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	tenant := as("blue", bothy.ScopeAdmin)
	user := as("default", bothy.ScopeSandboxesWrite)
	unlimited := bothy.PlanUnlimited
	for _, ctx := range []context.Context{tenant, user, t.Context()} {
		want := bothy.CodeForbidden
		if ctx == t.Context() {
			want = bothy.CodeUnauthenticated
		}
		_, err := p.CreateProject(ctx, bothy.ProjectCreate{ID: "green"})
		wantErr(t, "create", err, want)
		_, err = p.UpdateProject(ctx, "blue", bothy.ProjectUpdate{Plan: &unlimited})
		wantErr(t, "update", err, want)
	}
	if x, err := p.Project(tenant, "blue"); err != nil || x.ID != "blue" {
		t.Errorf("its own project is %v, %v", x, err)
	}
	_, err := p.Project(tenant, "red")
	wantErr(t, "another's project", err, bothy.CodeProjectNotFound)
	if all, err := p.Projects(tenant); err != nil || len(all) != 1 || all[0].ID != "blue" {
		t.Errorf("a tenant sees %v, %v", all, err)
	}
	_, err = p.Projects(user)
	wantErr(t, "list without the scope", err, bothy.CodeForbidden)
}

func TestBadProjects(t *testing.T) {
	p, _, w := newProjects(t)
	golden := "golden"
	for what, c := range map[string]struct {
		req  bothy.ProjectCreate
		code bothy.Code
	}{
		"no name":         {bothy.ProjectCreate{}, bothy.CodeInvalid},
		"a bad name":      {bothy.ProjectCreate{ID: "../x"}, bothy.CodeInvalid},
		"an unknown plan": {bothy.ProjectCreate{ID: "x", Plan: golden}, bothy.CodeInvalid},
		"a second of it":  {bothy.ProjectCreate{ID: bothy.DefaultProject}, bothy.CodeConflict},
	} {
		_, err := p.CreateProject(w.admin, c.req)
		wantErr(t, what, err, c.code)
	}
	_, err := p.UpdateProject(w.admin, bothy.DefaultProject, bothy.ProjectUpdate{Plan: &golden})
	wantErr(t, "an unknown plan", err, bothy.CodeInvalid)
	team := bothy.PlanTeam
	_, err = p.UpdateProject(w.admin, "none", bothy.ProjectUpdate{Plan: &team})
	wantErr(t, "no project", err, bothy.CodeProjectNotFound)
}

func TestKeysNeedAnExistingProject(t *testing.T) {
	p, db, w := newProjects(t)
	tokens := access.New(db, access.WithProjects(p))
	_, err := tokens.CreateToken(w.admin, bothy.TokenCreate{ProjectID: "blue"})
	wantErr(t, "before the project", err, bothy.CodeProjectNotFound)
	if _, err := p.CreateProject(w.admin, bothy.ProjectCreate{ID: "blue"}); err != nil {
		t.Fatal(err)
	}
	if k, err := tokens.CreateToken(w.admin, bothy.TokenCreate{ProjectID: "blue"}); err != nil || k.ProjectID != "blue" {
		t.Errorf("got %+v, %v", k, err)
	}
}

// The operator can revoke keys of any project; a project only its own.
func TestTheOperatorRevokesAnyKey(t *testing.T) {
	p, db, w := newProjects(t)
	tokens := access.New(db, access.WithProjects(p))
	for _, id := range []string{"red", "blue"} {
		if _, err := p.CreateProject(w.admin, bothy.ProjectCreate{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	red, err := tokens.CreateToken(w.admin, bothy.TokenCreate{ProjectID: "red"})
	if err != nil {
		t.Fatal(err)
	}
	blue := as("blue", bothy.ScopeAdmin)
	if list, err := tokens.Tokens(blue); err != nil || len(list) != 0 {
		t.Errorf("blue sees %v, %v", list, err)
	}
	wantErr(t, "blue revokes red's key", tokens.DeleteToken(blue, red.ID), bothy.CodeNotFound)
	if list, err := tokens.Tokens(w.admin); err != nil || len(list) != 1 || list[0].ProjectID != "red" {
		t.Errorf("the operator sees %v, %v", list, err)
	}
	if err := tokens.DeleteToken(w.admin, red.ID); err != nil {
		t.Fatal(err)
	}
	_, err = tokens.Authenticate(t.Context(), red.Key)
	wantErr(t, "the revoked key", err, bothy.CodeUnauthenticated)
	wantErr(t, "revoked twice", tokens.DeleteToken(w.admin, red.ID), bothy.CodeNotFound)
}
