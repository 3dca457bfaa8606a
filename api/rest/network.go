package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type networkLogInput struct {
	ID     string    `path:"id" doc:"The sandbox's id."`
	Accept string    `header:"Accept" hidden:"true"`
	Since  time.Time `query:"since" doc:"Only decisions from this time on."`
}

func (s *handlers) registerNetwork() {
	svc := s.services.Network
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "network-log", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/network/log", Tag: "Network",
		Summary: "Show what a sandbox tried to reach", Scope: bothy.ScopeSandboxesRead,
		Text: "Each connection and DNS query, whether it was allowed, and by which rule or why not. " +
			"With `Accept: text/event-stream`, new ones follow as they happen.",
		Returns: []middleware.Form{
			middleware.As[openapi.Items[bothy.NetworkDecision]]("application/json"),
			middleware.As[bothy.NetworkDecision](middleware.EventsType),
		},
	}, func(ctx context.Context, in *networkLogInput) (*openapi.Response, error) {
		if middleware.WantsEvents(in.Accept) {
			return s.followNetwork(in), nil
		}
		all := openapi.Items[bothy.NetworkDecision]{Items: []bothy.NetworkDecision{}}
		err := svc.NetworkLog(ctx, in.ID, in.Since, false, func(d bothy.NetworkDecision) error {
			all.Items = append(all.Items, d)
			return nil
		})
		if err != nil {
			return nil, err
		}
		return openapi.Respond(func(w http.ResponseWriter, _ *http.Request) { openapi.WriteJSON(w, http.StatusOK, all) }), nil
	})
}

func (s *handlers) followNetwork(in *networkLogInput) *openapi.Response {
	return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := s.Following(r.Context())
		defer cancel()
		s.streamEvents(w, r, ctx, func(ctx context.Context, send func(string, any) error) error {
			return s.services.Network.NetworkLog(ctx, in.ID, in.Since, true, func(d bothy.NetworkDecision) error { return send("", d) })
		})
	})
}
