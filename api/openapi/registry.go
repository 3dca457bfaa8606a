// Package openapi registers operations: it validates their input, mounts them behind the
// middleware, and describes them in the OpenAPI document. It is the only package that configures
// huma.
package openapi

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/problem"
)

// A Registry holds the operations, and the document that describes them.
type Registry struct {
	chain        *middleware.Chain
	mux          *http.ServeMux
	huma         huma.API
	operations   []middleware.Operation
	undocumented []middleware.Operation
	document     document
}

// NewRegistry makes a registry of operations that are mounted on mux behind the chain.
// Version and address are for the document.
func NewRegistry(mux *http.ServeMux, chain *middleware.Chain, version, address string) *Registry {
	s := &Registry{chain: chain, mux: mux}
	s.huma = huma.NewAPI(humaConfig(version, address), adapter{s})
	return s
}

// OpenAPI is the document.
func (s *Registry) OpenAPI() *huma.OpenAPI { return s.huma.OpenAPI() }

// Operations are those that the document describes.
func (s *Registry) Operations() []middleware.Operation { return s.operations }

// Undocumented are those that the document does not describe.
func (s *Registry) Undocumented() []middleware.Operation { return s.undocumented }

// Mount adds an operation by any method, which the document does not describe.
func (s *Registry) Mount(c middleware.Operation, h http.HandlerFunc) {
	s.undocumented = append(s.undocumented, c)
	s.mux.HandleFunc(c.Path, s.chain.Guard(c, h))
}

// HandleFunc mounts a route that is not an operation. It must authenticate by itself.
func (s *Registry) HandleFunc(pattern string, h http.HandlerFunc) { s.mux.HandleFunc(pattern, h) }

// adapter puts huma's handlers behind the middleware.
type adapter struct{ *Registry }

// ServeHTTP implements huma.Adapter.
func (a adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Handle implements huma.Adapter.
func (a adapter) Handle(op *huma.Operation, h func(huma.Context)) {
	c, ok := op.Metadata["operation"].(middleware.Operation)
	if !ok {
		panic("api: an operation without a call: " + op.Path)
	}
	a.operations = append(a.operations, c)
	a.mux.HandleFunc(c.Method+" "+c.Path, a.chain.Guard(c, func(w http.ResponseWriter, r *http.Request) {
		if c.Multipart != nil && middleware.IsMultipart(r) {
			c.Multipart(w, r)
			return
		}
		if c.Raw {
			whole := &middleware.WholeProblem{ResponseWriter: w}
			defer whole.Send()
			w = whole
		}
		h(humago.NewContext(op, r, w))
	}))
}

// Add registers a call. I and O are huma's input and output structs.
func Add[I, O any](s *Registry, c middleware.Operation, h func(context.Context, *I) (*O, error)) {
	op := huma.Operation{
		OperationID: c.ID, Method: c.Method, Path: c.Path, Tags: []string{c.Tag},
		Summary: c.Summary, Description: c.Text, DefaultStatus: c.Status,
		Security:     []map[string][]string{{"key": {}}},
		MaxBodyBytes: -1, BodyReadTimeout: -1, // the middleware has checked both
		RejectUnknownQueryParameters: !c.AnyQuery,
		Parameters:                   c.Parameters,
		Responses:                    map[string]*huma.Response{"default": {Ref: "#/components/responses/Problem"}},
		Extensions:                   map[string]any{"x-scope": string(c.Scope)},
	}
	if c.RemembersAny() {
		op.Parameters = append(op.Parameters, &huma.Param{Ref: "#/components/parameters/IdempotencyKey"})
	}
	s.documentForms(&op, c)
	op.Metadata = map[string]any{"operation": c, "fields": jsonFields(reflect.TypeFor[I]())}
	huma.Register(s.huma, op, func(ctx context.Context, in *I) (*O, error) {
		middleware.Decoded(ctx)
		middleware.NoteInput(ctx, in)
		out, err := h(ctx, in)
		if err != nil {
			if cause := middleware.EndedBy(ctx); cause != nil {
				err = cause
			}
			p := problem.Of(err)
			middleware.Note(ctx, p)
			return nil, p
		}
		middleware.NoteOutput(ctx, out)
		return out, nil
	})
}

func (s *Registry) documentForms(op *huma.Operation, c middleware.Operation) {
	if len(c.Returns) == 0 {
		return
	}
	status := c.Status
	if status == 0 {
		status = http.StatusOK
	}
	content := map[string]*huma.MediaType{}
	for _, f := range c.Returns {
		content[f.ContentType] = &huma.MediaType{Schema: &huma.Schema{Type: "string", Format: "binary"}}
		if f.Of != nil {
			content[f.ContentType].Schema = s.Schema(f.Of)
		}
		if f.Of != nil && f.ContentType == middleware.EventsType { // an "event: error" ends a stream that fails
			content[middleware.EventsType].Schema = &huma.Schema{
				AnyOf:       []*huma.Schema{s.Schema(f.Of), s.Schema(reflect.TypeFor[problem.Problem]())},
				Description: "The data of an event. One with `event: error` says that the stream failed, and ends it.",
			}
		}
	}
	op.DefaultStatus = status
	op.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status), Content: content}
}

func (s *Registry) Schema(t reflect.Type) *huma.Schema {
	return s.huma.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// jsonFields names the fields of the input's body.
func jsonFields(in reflect.Type) []string {
	f, ok := in.FieldByName("Body")
	if !ok {
		return nil
	}
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" && name != "_" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// The shapes that many calls share.
type (
	Empty struct{}

	IDInput struct {
		ID string `path:"id" doc:"The id."`
	}

	Answer[T any] struct{ Body T }

	Items[T any] struct {
		Items []T `json:"items" doc:"The items."`
	}

	// Response is an answer that the call itself writes.
	Response struct{ Body func(huma.Context) }
)

// AuditOutput extracts what was created.
func (a *Answer[T]) AuditOutput() (sandbox, object string) {
	switch x := any(a.Body).(type) {
	case *bothy.Sandbox:
		return x.ID, ""
	case *bothy.Snapshot:
		return "", x.ID
	case *bothy.Token:
		return "", x.ID
	case *bothy.CodeContext:
		return "", x.ID
	case *bothy.Link:
		return "", x.ID
	case *bothy.MovedSandbox:
		return x.SandboxID, x.From + " " + x.To
	case middleware.Touched:
		return "", x.AuditObject()
	case Items[*bothy.Sandbox]:
		ids := make([]string, len(x.Items))
		for i, b := range x.Items {
			ids[i] = b.ID
		}
		return "", strings.Join(ids, " ")
	}
	return "", ""
}

func AnswerWith[T any](v T) *Answer[T] { return &Answer[T]{Body: v} }

func AnswerList[T any](v []T) *Answer[Items[T]] {
	if v == nil {
		v = []T{}
	}
	return AnswerWith(Items[T]{Items: v})
}

func Respond(f func(w http.ResponseWriter, r *http.Request)) *Response {
	return &Response{Body: func(c huma.Context) {
		r, w := humago.Unwrap(c)
		f(w, r)
	}}
}

func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = problem.Encode(w, v)
}
