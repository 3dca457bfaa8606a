package api

import (
	"context"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/bothy-dev/bothy"
)

// call describes one operation, apart from its input and output.
type call struct {
	ID      string
	Method  string
	Path    string
	Tag     string
	Summary string
	Text    string
	// Scope is what the caller must hold.
	Scope bothy.Scope
	// Status is that of success; 200, or 204 for an empty answer, when zero.
	Status int
	// Raw is a body of bytes, which is streamed and not bounded.
	Raw bool
	// Secret is an answer that must not be kept.
	Secret bool
	// Returns are the forms of the answer of a call that writes it itself.
	Returns []form
	// AnyQuery lets the call look at the query itself.
	AnyQuery bool
	// Parameters are those that the input does not show.
	Parameters []*huma.Param
	// Audit has a call that changes nothing be recorded as well.
	Audit bool
	// Multipart takes requests with a multipart body.
	Multipart http.HandlerFunc

	fields []string
}

// form is one content type of an answer, with the type of its JSON or of the
// events in it; no type means bytes.
type form struct {
	contentType string
	of          reflect.Type
}

func (c call) mutates() bool { return c.Method != http.MethodGet }

func isMultipart(r *http.Request) bool {
	t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return t == "multipart/form-data"
}

func (c call) takesJSON(r *http.Request) bool {
	return c.mutates() && !c.Raw && !(c.Multipart != nil && isMultipart(r))
}

// remembers reports whether the answer to a repetition is that of the first
// request. Where bytes are put in place, repeating does no harm anyway.
func (c call) remembers(r *http.Request) bool { return c.takesJSON(r) }

// adapter puts huma's handlers behind our door.
type adapter struct{ *Server }

// Handle implements huma.Adapter.
func (a adapter) Handle(op *huma.Operation, h func(huma.Context)) {
	c, ok := op.Metadata["call"].(call)
	if !ok {
		panic("api: an operation without a call: " + op.Path)
	}
	a.calls = append(a.calls, c)
	a.mux.HandleFunc(c.Method+" "+c.Path, a.door(c, func(w http.ResponseWriter, r *http.Request) {
		if c.Multipart != nil && isMultipart(r) {
			c.Multipart(w, r)
			return
		}
		if c.Raw {
			whole := &wholeProblem{ResponseWriter: w}
			defer whole.send()
			w = whole
		}
		h(humago.NewContext(op, r, w))
	}))
}

// add registers a call. I and O are huma's input and output structs.
func add[I, O any](s *Server, c call, h func(context.Context, *I) (*O, error)) {
	op := huma.Operation{
		OperationID: c.ID, Method: c.Method, Path: c.Path, Tags: []string{c.Tag},
		Summary: c.Summary, Description: c.Text, DefaultStatus: c.Status,
		Security:     []map[string][]string{{"key": {}}},
		MaxBodyBytes: -1, BodyReadTimeout: -1, // the door has seen to both
		RejectUnknownQueryParameters: !c.AnyQuery,
		Parameters:                   c.Parameters,
		Responses:                    map[string]*huma.Response{"default": {Ref: "#/components/responses/Problem"}},
		Extensions:                   map[string]any{"x-scope": string(c.Scope)},
	}
	if c.remembersAny() {
		op.Parameters = append(op.Parameters, &huma.Param{Ref: "#/components/parameters/IdempotencyKey"})
	}
	s.documentForms(&op, c)
	c.fields = jsonFields(reflect.TypeFor[I]())
	op.Metadata = map[string]any{"call": c}
	huma.Register(s.huma, op, func(ctx context.Context, in *I) (*O, error) {
		decoded(ctx)
		noteInput(ctx, in)
		out, err := h(ctx, in)
		if err != nil {
			if cause := endedBy(ctx); cause != nil {
				err = cause
			}
			p := problemOf(err)
			note(ctx, p)
			return nil, p
		}
		noteOutput(ctx, out)
		return out, nil
	})
}

func (c call) remembersAny() bool { return c.mutates() && !c.Raw }

func (s *Server) documentForms(op *huma.Operation, c call) {
	if len(c.Returns) == 0 {
		return
	}
	status := c.Status
	if status == 0 {
		status = http.StatusOK
	}
	content := map[string]*huma.MediaType{}
	for _, f := range c.Returns {
		content[f.contentType] = &huma.MediaType{Schema: &huma.Schema{Type: "string", Format: "binary"}}
		if f.of != nil {
			content[f.contentType].Schema = s.schema(f.of)
		}
		if f.of != nil && f.contentType == eventsType { // an "event: error" ends a stream that fails
			content[eventsType].Schema = &huma.Schema{
				AnyOf:       []*huma.Schema{s.schema(f.of), s.schema(typeFor[Problem]())},
				Description: "The data of an event. One with `event: error` says that the stream failed, and ends it.",
			}
		}
	}
	op.DefaultStatus = status
	op.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status), Content: content}
}

func (s *Server) schema(t reflect.Type) *huma.Schema {
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
	empty struct{}

	idInput struct {
		ID string `path:"id" doc:"The id."`
	}

	answer[T any] struct{ Body T }

	items[T any] struct {
		Items []T `json:"items" doc:"The items."`
	}

	// byHand is the answer of a call that writes it itself.
	byHand struct{ Body func(huma.Context) }
)

func of[T any](v T) *answer[T] { return &answer[T]{Body: v} }

func list[T any](v []T) *answer[items[T]] {
	if v == nil {
		v = []T{}
	}
	return of(items[T]{Items: v})
}

func write(f func(w http.ResponseWriter, r *http.Request)) *byHand {
	return &byHand{Body: func(c huma.Context) {
		r, w := humago.Unwrap(c)
		f(w, r)
	}}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = encode(w, v)
}
