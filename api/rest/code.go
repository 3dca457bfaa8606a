package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type (
	codeInput struct {
		ID     string `path:"id" doc:"The sandbox's id."`
		Accept string `header:"Accept" hidden:"true"`
		Body   bothy.CodeRequest
	}
	contextInput struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Body *bothy.CodeContextCreate
	}
	contextRef struct {
		ID      string `path:"id" doc:"The sandbox's id."`
		Context string `path:"context" doc:"The context's id."`
	}
)

func (s *handlers) registerCode() {
	svc := s.services.Code
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "run-code", Once: true, Method: http.MethodPost, Path: "/v1/sandboxes/{id}/code", Tag: "Code",
		Summary: "Run code", Scope: bothy.ScopeSandboxesWrite,
		Text: "Runs code in a context, where variables persist from one piece to the next. An exception in the code is a result, not an error of the call. " +
			"With `Accept: text/event-stream` output and results come as events while the code runs, and the last event has `is_final`; " +
			"a caller that disconnects before that interrupts the code.",
		Returns: []middleware.Form{middleware.As[bothy.CodeResult]("application/json"), middleware.As[bothy.CodeEvent](middleware.EventsType)},
	}, func(ctx context.Context, in *codeInput) (*openapi.Response, error) {
		if middleware.WantsEvents(in.Accept) {
			return s.codeStream(in.ID, in.Body, func(e bothy.CodeEvent) any { return e }), nil
		}
		result, err := svc.RunCode(ctx, in.ID, in.Body)
		if err != nil {
			return nil, err
		}
		if result.Results == nil {
			result.Results = []bothy.CodeOutput{}
		}
		return openapi.Respond(func(w http.ResponseWriter, _ *http.Request) { openapi.WriteJSON(w, http.StatusOK, result) }), nil
	})
	s.registerContexts(svc)
	s.registerShells()
}

// codeStream runs code and sends its events in the form that wire returns.
func (s *handlers) codeStream(id string, req bothy.CodeRequest, wire func(bothy.CodeEvent) any) *openapi.Response {
	return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
		s.streamEvents(w, r, r.Context(), func(ctx context.Context, send func(string, any) error) error {
			return s.services.Code.RunCodeStream(ctx, id, req, func(e bothy.CodeEvent) error { return send("", wire(e)) })
		})
	})
}

func (s *handlers) registerContexts(svc bothy.CodeService) {
	const base = "/v1/sandboxes/{id}/contexts"
	openapi.Add(s.registry, middleware.Operation{
		ID: "create-context", Method: http.MethodPost, Path: base, Tag: "Code",
		Summary: "Create a context", Scope: bothy.ScopeSandboxesWrite, Status: http.StatusCreated,
		Text: "A context has its own variables. Different contexts run code concurrently.",
	}, func(ctx context.Context, in *contextInput) (*openapi.Answer[*bothy.CodeContext], error) {
		if in.Body == nil {
			in.Body = &bothy.CodeContextCreate{}
		}
		return one(svc.CreateContext(ctx, in.ID, *in.Body))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-contexts", Method: http.MethodGet, Path: base, Tag: "Code",
		Summary: "List contexts", Scope: bothy.ScopeSandboxesRead,
	}, func(ctx context.Context, in *openapi.IDInput) (*openapi.Answer[openapi.Items[bothy.CodeContext]], error) {
		return many(svc.Contexts(ctx, in.ID))
	})
	addContextActions(s, base+"/{context}", "Code", func(in *contextRef) (id, contextID string) { return in.ID, in.Context }, []contextAction{
		{"delete-context", http.MethodDelete, "", "Delete a context", "Its variables are gone.", svc.DeleteContext},
		{"interrupt-context", http.MethodPost, "/interrupt", "Interrupt the code in a context", "As Ctrl-C does. Code that waits for its interpreter to start is interrupted, too. Where no code runs, the answer is `conflict`.", svc.InterruptContext},
		{"restart-context", http.MethodPost, "/restart", "Reset a context", "Its variables are gone.", svc.RestartContext},
	})
}

// contextAction is an operation on a context, or on the shell that a context is.
type contextAction struct {
	id, method, rest, summary, text string
	do                              func(ctx context.Context, id, contextID string) error
}

// addContextActions adds them below path; names extracts the names from an
// input.
func addContextActions[In any](s *handlers, path, tag string, names func(*In) (id, contextID string), actions []contextAction) {
	for _, a := range actions {
		openapi.Add(s.registry, middleware.Operation{
			ID: a.id, Method: a.method, Path: path + a.rest, Tag: tag,
			Summary: a.summary, Text: a.text, Scope: bothy.ScopeSandboxesWrite,
		}, func(ctx context.Context, in *In) (*openapi.Empty, error) {
			id, contextID := names(in)
			return nil, a.do(ctx, id, contextID)
		})
	}
}
