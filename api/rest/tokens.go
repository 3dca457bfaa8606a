package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type tokenInput struct {
	Body *bothy.TokenCreate
}

func (s *handlers) registerTokens() {
	svc := s.services.Tokens
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "create-token", Method: http.MethodPost, Path: "/v1/tokens", Tag: "Tokens",
		Summary: "Create a token", Scope: bothy.ScopeAdmin, Status: http.StatusCreated, Secret: true,
		Text: "The answer contains the key, which is shown only this once: the server keeps only its hash.",
	}, func(ctx context.Context, in *tokenInput) (*openapi.Answer[*bothy.Token], error) {
		if in.Body == nil {
			in.Body = &bothy.TokenCreate{}
		}
		return one(svc.CreateToken(ctx, *in.Body))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-tokens", Method: http.MethodGet, Path: "/v1/tokens", Tag: "Tokens",
		Summary: "List tokens", Scope: bothy.ScopeAdmin,
	}, func(ctx context.Context, _ *openapi.Empty) (*openapi.Answer[openapi.Items[*bothy.Token]], error) {
		return many(svc.Tokens(ctx))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "delete-token", Revokes: true, Method: http.MethodDelete, Path: "/v1/tokens/{id}", Tag: "Tokens",
		Summary: "Revoke a token", Scope: bothy.ScopeAdmin,
		Text: "Once the answer arrives, the key no longer works.",
	}, func(ctx context.Context, in *openapi.IDInput) (*openapi.Empty, error) {
		return nil, svc.DeleteToken(ctx, in.ID)
	})
}
