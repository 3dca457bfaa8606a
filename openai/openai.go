// Package openai implements the containers of OpenAI's API (/v1/containers): its official SDKs
// work unchanged when given this server's address. A container is a sandbox. The package
// translates and keeps no state: information about a container is in the sandbox's metadata, and
// information about a file in the file's id.
//
// server mounts Routes next to the REST API, whose middleware applies to every call.
package openai

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
)

// Services are the services behind the API.
type Services struct {
	Sandboxes bothy.SandboxService
	Exec      bothy.ExecService
	Files     bothy.FileService
	Limits    bothy.LimitsService
	// Note records for the audit what a call was about.
	Note func(r *http.Request, sandbox, object, command string)
}

// Door answers OpenAI's clients.
type Door struct {
	Services
	template string
}

// New returns a door to the services. Containers start from the template.
func New(s Services, template string) *Door { return &Door{s, template} }

// Handler answers a request, or returns the error that it did not answer with.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Route is one operation.
type Route struct {
	// Pattern is its pattern for http.ServeMux.
	Pattern string
	// ID names it in the record of who did what.
	ID    string
	Scope bothy.Scope
	// Raw marks a call whose body is forwarded as it arrives.
	Raw     bool
	Handler Handler
}

// Routes are all there are.
func (d *Door) Routes() []Route {
	write, look := bothy.ScopeSandboxesWrite, bothy.ScopeSandboxesRead
	return []Route{
		{"POST /v1/containers", "openai:create-container", write, false, d.create},
		{"GET /v1/containers", "openai:list-containers", look, false, d.list},
		{"GET /v1/containers/{container}", "openai:get-container", look, false, d.get},
		{"DELETE /v1/containers/{container}", "openai:delete-container", write, false, d.remove},
		{"POST /v1/containers/{container}/files", "openai:create-file", write, true, d.createFile},
		{"GET /v1/containers/{container}/files", "openai:list-files", look, false, d.listFiles},
		{"GET /v1/containers/{container}/files/{file}", "openai:get-file", look, false, d.getFile},
		{"DELETE /v1/containers/{container}/files/{file}", "openai:delete-file", write, false, d.removeFile},
		{"GET /v1/containers/{container}/files/{file}/content", "openai:read-file", look, false, d.content},
	}
}

// statuses are those that differ from the REST API's, because clients depend on them.
var statuses = map[bothy.Code]int{
	bothy.CodeSandboxEnded: http.StatusNotFound,
	bothy.CodeUnsupported:  http.StatusBadRequest,
}

// Fail answers with an error.
func Fail(w http.ResponseWriter, _ *http.Request, status int, err *bothy.Error) {
	if s, ok := statuses[err.Code]; ok {
		status = s
	}
	message := err.Detail
	if err.Hint != "" {
		message += ". " + err.Hint
	}
	kind, code := "invalid_request_error", string(err.Code)
	switch {
	case status == http.StatusUnauthorized:
		code = "invalid_api_key"
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	_ = reply(w, status, map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": code}})
}

func invalid(format string, args ...any) *bothy.Error {
	return bothy.Errorf(bothy.CodeInvalid, format, args...)
}

func unsupported(format string, args ...any) *bothy.Error {
	return bothy.Errorf(bothy.CodeUnsupported, format, args...)
}

// Limits of bodies of JSON.
const (
	maxBody   = 1 << 20
	maxDepth  = 100
	maxValues = 100_000
)

// read decodes a body. An unknown field is refused, so that none is silently dropped.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	err := bounded.JSON(r.Context(), http.MaxBytesReader(w, r.Body, maxBody), v,
		bounded.JSONLimits{Bytes: maxBody, Depth: maxDepth, Values: maxValues, Known: true})
	var large *http.MaxBytesError
	var limit *bounded.Error
	var e *bothy.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return bothy.Errorf(bothy.CodeTooLarge, "the body is larger than %d bytes", maxBody)
	case errors.As(err, &limit):
		return bothy.Errorf(bothy.CodeTooLarge, "the body has %v", limit)
	case errors.As(err, &e):
		return e
	case errors.Is(err, io.EOF):
		return invalid("the body is empty").WithHint("Send a JSON object.")
	}
	return invalid("the body is not what this call takes: %v", err)
}

func reply(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

// page is one page of a list.
type page[T any] struct {
	Object  string  `json:"object"`
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

// pageOf makes a page of up to limit items, of which there may be more.
func pageOf[T any](items []T, limit int, id func(T) string) page[T] {
	p := page[T]{Object: "list", Data: []T{}, HasMore: len(items) > limit}
	p.Data = append(p.Data, items[:min(limit, len(items))]...)
	if len(p.Data) > 0 {
		first, last := id(p.Data[0]), id(p.Data[len(p.Data)-1])
		p.FirstID, p.LastID = &first, &last
	}
	return p
}

// paging parses the parameters of a list.
func paging(q url.Values) (after string, limit int, ascending bool, err error) {
	limit = 20
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > 100 {
			return "", 0, false, invalid("limit is %q", text).WithHint("Give a number from 1 to 100.")
		}
	}
	switch order := q.Get("order"); order {
	case "", "desc":
	case "asc":
		ascending = true
	default:
		return "", 0, false, invalid("order is %q", order).WithHint("Give asc or desc.")
	}
	return q.Get("after"), limit, ascending, nil
}
