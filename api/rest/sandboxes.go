package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type createInput struct {
	// This is a pointer because an empty body requests all the defaults.
	Body *bothy.SandboxCreate
}

type createdOutput struct {
	Location string `header:"Location" doc:"Where the new sandbox is."`
	Body     *bothy.Sandbox
}

type updateInput struct {
	ID   string `path:"id" doc:"The sandbox's id."`
	Body bothy.SandboxUpdate
}

type listInput struct {
	Name   string `query:"name" doc:"Only sandboxes with this name."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most to return."`
	Cursor string `query:"cursor" doc:"The next_cursor of the previous page."`

	states   []bothy.State
	metadata map[string]string
}

// Resolve implements huma.Resolver: the names of metadata parameters are not known in advance,
// and states may be repeated, separated by commas, or both.
func (in *listInput) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	q := u.Query()
	in.metadata = map[string]string{}
	errs := dotted(q, "metadata", in.metadata, "state", "name", "limit", "cursor")
	choices := openapi.StateSchema("").Schema(nil).Enum
	for _, value := range q["state"] {
		for one := range strings.SplitSeq(value, ",") {
			if !slices.Contains(choices, any(one)) {
				errs = append(errs, &huma.ErrorDetail{Location: "query.state", Message: expectedOne(choices), Value: one})
			}
			in.states = append(in.states, bothy.State(one))
		}
	}
	return errs
}

// expectedOne is the beginning of huma's message for a value that is not in an enumeration.
func expectedOne(of []any) string {
	names := strings.TrimSuffix(fmt.Sprintln(of...), "\n")
	return fmt.Sprintf(`expected value to be one of "%s"`, strings.ReplaceAll(names, " ", ", "))
}

// dotted collects parameters of the form prefix.KEY=VALUE, and refuses others that are unknown.
func dotted(q url.Values, prefix string, into map[string]string, known ...string) (errs []error) {
next:
	for name, values := range q {
		if key, ok := strings.CutPrefix(name, prefix+"."); ok && key != "" {
			into[key] = values[0]
			continue
		}
		for _, k := range known {
			if name == k {
				continue next
			}
		}
		errs = append(errs, &huma.ErrorDetail{Location: "query." + name, Message: "unknown query parameter"})
	}
	return errs
}

func (s *handlers) registerSandboxes() {
	svc := s.services.Sandboxes
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "create-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes", Tag: "Sandboxes",
		Summary: "Create a sandbox", Scope: bothy.ScopeSandboxesWrite, Status: http.StatusCreated,
		Text: "Starts a sandbox from a template or a snapshot, and answers when it is running. Without a body all defaults apply.",
	}, func(ctx context.Context, in *createInput) (*createdOutput, error) {
		if in.Body == nil {
			in.Body = &bothy.SandboxCreate{}
		}
		b, err := svc.Create(ctx, *in.Body)
		if err != nil {
			return nil, err
		}
		return &createdOutput{Location: "/v1/sandboxes/" + b.ID, Body: b}, nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-sandboxes", Method: http.MethodGet, Path: "/v1/sandboxes", Tag: "Sandboxes",
		Summary: "List sandboxes", Scope: bothy.ScopeSandboxesRead, AnyQuery: true,
		Text: "Newest first, including ended ones. Filter by metadata with parameters of the form `metadata.KEY=VALUE`; all filters must match.",
		Parameters: []*huma.Param{{
			Name: "state", In: "query", Schema: &huma.Schema{Type: huma.TypeArray, Items: openapi.StateSchema("").Schema(nil)},
			Description: "Only sandboxes in one of these states. May be repeated, or hold several separated by commas.",
		}, {
			Name: "metadata.KEY", In: "query", Schema: &huma.Schema{Type: "string"},
			Description: "Only sandboxes whose metadata has this value under KEY. May be given for several keys.",
		}},
	}, func(ctx context.Context, in *listInput) (*openapi.Answer[bothy.Page[*bothy.Sandbox]], error) {
		p, err := svc.List(ctx, bothy.SandboxFilter{
			States: in.states, Name: in.Name, Metadata: in.metadata, Limit: in.Limit, Cursor: in.Cursor,
		})
		return page(p, err)
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-sandbox", Method: http.MethodGet, Path: "/v1/sandboxes/{id}", Tag: "Sandboxes",
		Summary: "Get a sandbox", Scope: bothy.ScopeSandboxesRead,
		Text: "Even after its end: `ended` then says why and when.",
	}, func(ctx context.Context, in *openapi.IDInput) (*openapi.Answer[*bothy.Sandbox], error) {
		return one(svc.Get(ctx, in.ID))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "update-sandbox", Method: http.MethodPatch, Path: "/v1/sandboxes/{id}", Tag: "Sandboxes",
		Summary: "Change a sandbox", Scope: bothy.ScopeSandboxesWrite,
		Text: "Fields that are left out stay as they are. `timeout_seconds` counts from now; `network` takes effect immediately, on open connections too.",
	}, func(ctx context.Context, in *updateInput) (*openapi.Answer[*bothy.Sandbox], error) {
		return one(svc.Update(ctx, in.ID, in.Body))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "restart-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/restart", Tag: "Sandboxes",
		Summary: "Restart a sandbox that has failed", Scope: bothy.ScopeSandboxesWrite,
		Text: "Starts it again under its id and with its settings, such as name, environment, network, secrets and metadata, from the snapshot that it was made from, if that still exists, or else from its template. Its changes are lost, and so are its links. `failed` are sandboxes that ended with `host_lost`, `host_restart`, `out_of_memory`, `disk_full` or `error`; others are a `conflict`.",
	}, func(ctx context.Context, in *openapi.IDInput) (*openapi.Answer[*bothy.Sandbox], error) {
		return one(svc.Restart(ctx, in.ID))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "terminate-sandbox", Method: http.MethodDelete, Path: "/v1/sandboxes/{id}", Tag: "Sandboxes",
		Summary: "Terminate a sandbox", Scope: bothy.ScopeSandboxesWrite,
		Text: "Ends it and frees its resources. Terminating an ended sandbox is not an error.",
	}, func(ctx context.Context, in *openapi.IDInput) (*openapi.Empty, error) {
		return nil, svc.Terminate(ctx, in.ID)
	})
}

func one[T any](v T, err error) (*openapi.Answer[T], error) {
	if err != nil {
		return nil, err
	}
	return openapi.AnswerWith(v), nil
}

func many[T any](all []T, err error) (*openapi.Answer[openapi.Items[T]], error) {
	if err != nil {
		return nil, err
	}
	return openapi.AnswerList(all), nil
}

func page[T any](p bothy.Page[T], err error) (*openapi.Answer[bothy.Page[T]], error) {
	if p.Items == nil {
		p.Items = []T{}
	}
	return one(p, err)
}
