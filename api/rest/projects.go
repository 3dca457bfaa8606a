package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
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
	openapi.Add(s.registry, middleware.Operation{
		ID: "create-project", Method: http.MethodPost, Path: "/v1/projects", Tag: "Projects",
		Summary: "Create a project", Scope: bothy.ScopeAdmin, Status: http.StatusCreated,
		Text: "A project owns sandboxes, snapshots and keys, which no other project sees. Its plan limits what it may use: " + bothy.PlanNames() +
			". Only the default project, which is the operator's, can create projects.",
	}, func(ctx context.Context, in *projectInput) (*openapi.Answer[*bothy.Project], error) {
		return one(svc.CreateProject(ctx, in.Body))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-projects", Method: http.MethodGet, Path: "/v1/projects", Tag: "Projects",
		Summary: "List projects", Scope: bothy.ScopeAdmin,
		Text: "All of them for the default project, only its own for any other.",
	}, func(ctx context.Context, _ *openapi.Empty) (*openapi.Answer[openapi.Items[*bothy.Project]], error) {
		return many(svc.Projects(ctx))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-project", Method: http.MethodGet, Path: "/v1/projects/{id}", Tag: "Projects",
		Summary: "Get a project", Scope: bothy.ScopeAdmin,
	}, func(ctx context.Context, in *projectIDInput) (*openapi.Answer[*bothy.Project], error) {
		return one(svc.Project(ctx, in.ID))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "update-project", Method: http.MethodPatch, Path: "/v1/projects/{id}", Tag: "Projects",
		Summary: "Change a project", Scope: bothy.ScopeAdmin,
		Text: "A smaller plan takes away nothing that is in use; it only refuses more.",
	}, func(ctx context.Context, in *projectUpdateInput) (*openapi.Answer[*bothy.Project], error) {
		return one(svc.UpdateProject(ctx, in.ID, in.Body))
	})
}
