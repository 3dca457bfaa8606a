package api

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
)

type projectInput struct {
	Body bothy.ProjectCreate
}

type projectUpdateInput struct {
	ID   string `path:"id" doc:"The project's name."`
	Body bothy.ProjectUpdate
}

type projectIDInput struct {
	ID string `path:"id" doc:"The project's name."`
}

func (s *handlers) registerProjects() {
	svc := s.services.Projects
	if svc == nil {
		return
	}
	add(s.registry, Operation{
		ID: "create-project", Method: http.MethodPost, Path: "/v1/projects", Tag: "Projects",
		Summary: "Create a project", Scope: bothy.ScopeAdmin, Status: http.StatusCreated,
		Text: "A project owns sandboxes, snapshots and keys, and nobody else sees them. Its plan bounds what it may use: " + bothy.PlanNames() +
			". Only the default project, which is the operator's, makes projects.",
	}, func(ctx context.Context, in *projectInput) (*answer[*bothy.Project], error) {
		return one(svc.CreateProject(ctx, in.Body))
	})
	add(s.registry, Operation{
		ID: "list-projects", Method: http.MethodGet, Path: "/v1/projects", Tag: "Projects",
		Summary: "List projects", Scope: bothy.ScopeAdmin,
		Text: "All of them for the default project, and its own for another.",
	}, func(ctx context.Context, _ *empty) (*answer[items[*bothy.Project]], error) {
		p, err := svc.Projects(ctx)
		if err != nil {
			return nil, err
		}
		return list(p), nil
	})
	add(s.registry, Operation{
		ID: "get-project", Method: http.MethodGet, Path: "/v1/projects/{id}", Tag: "Projects",
		Summary: "Get a project", Scope: bothy.ScopeAdmin,
	}, func(ctx context.Context, in *projectIDInput) (*answer[*bothy.Project], error) {
		return one(svc.Project(ctx, in.ID))
	})
	add(s.registry, Operation{
		ID: "update-project", Method: http.MethodPatch, Path: "/v1/projects/{id}", Tag: "Projects",
		Summary: "Change a project", Scope: bothy.ScopeAdmin,
		Text: "A smaller plan takes nothing away that is in use: only more is refused.",
	}, func(ctx context.Context, in *projectUpdateInput) (*answer[*bothy.Project], error) {
		return one(svc.UpdateProject(ctx, in.ID, in.Body))
	})
}
