package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bothy-dev/bothy"
)

// statuses says with which HTTP status each code travels.
var statuses = map[bothy.Code]int{
	bothy.CodeInvalid:          http.StatusBadRequest,
	bothy.CodeUnauthenticated:  http.StatusUnauthorized,
	bothy.CodeTokenExpired:     http.StatusUnauthorized,
	bothy.CodeForbidden:        http.StatusForbidden,
	bothy.CodeNotFound:         http.StatusNotFound,
	bothy.CodeTemplateNotFound: http.StatusNotFound,
	bothy.CodeProjectNotFound:  http.StatusNotFound,
	bothy.CodeTemplateInvalid:  http.StatusUnprocessableEntity,
	bothy.CodeTemplateInUse:    http.StatusConflict,
	bothy.CodeSandboxNotFound:  http.StatusNotFound,
	bothy.CodeSnapshotNotFound: http.StatusNotFound,
	bothy.CodeProcessNotFound:  http.StatusNotFound,
	bothy.CodeContextNotFound:  http.StatusNotFound,
	bothy.CodeSandboxPaused:    http.StatusConflict,
	bothy.CodeSandboxEnded:     http.StatusConflict,
	bothy.CodeSandboxNotReady:  http.StatusConflict,
	bothy.CodeConflict:         http.StatusConflict,
	bothy.CodeIdempotency:      http.StatusUnprocessableEntity,
	bothy.CodeQuota:            http.StatusTooManyRequests,
	bothy.CodeBudget:           http.StatusPaymentRequired,
	bothy.CodeCapacity:         http.StatusServiceUnavailable,
	bothy.CodeRateLimited:      http.StatusTooManyRequests,
	bothy.CodeTooLarge:         http.StatusRequestEntityTooLarge,
	bothy.CodePathInvalid:      http.StatusBadRequest,
	bothy.CodeFileNotFound:     http.StatusNotFound,
	bothy.CodeFileExists:       http.StatusConflict,
	bothy.CodeNotADirectory:    http.StatusBadRequest,
	bothy.CodeIsADirectory:     http.StatusBadRequest,
	bothy.CodePermission:       http.StatusForbidden,
	bothy.CodeDiskFull:         http.StatusInsufficientStorage,
	bothy.CodeCommandNotFound:  http.StatusBadRequest,
	bothy.CodeCommandInvalid:   http.StatusBadRequest,
	bothy.CodeCommandCancelled: http.StatusConflict,
	bothy.CodeUserNotFound:     http.StatusBadRequest,
	bothy.CodeSnapshotDamaged:  http.StatusUnprocessableEntity,
	bothy.CodeSnapshotInUse:    http.StatusConflict,
	bothy.CodeEngine:           http.StatusInternalServerError,
	bothy.CodeEngineMissing:    http.StatusServiceUnavailable,
	bothy.CodeNoAcceleration:   http.StatusUnprocessableEntity,
	bothy.CodeGuest:            http.StatusBadGateway,
	bothy.CodeTimeout:          http.StatusGatewayTimeout,
	bothy.CodeShuttingDown:     http.StatusServiceUnavailable,
	bothy.CodeUnsupported:      http.StatusUnprocessableEntity,
	bothy.CodeMethodNotAllowed: http.StatusMethodNotAllowed,
	bothy.CodeMediaType:        http.StatusUnsupportedMediaType,
	bothy.CodeMisdirected:      http.StatusMisdirectedRequest,
	bothy.CodeInternal:         http.StatusInternalServerError,
}

func statusOf(c bothy.Code) int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Problem is the body of every answer that reports a failure.
type Problem struct {
	Status int        `json:"status"`
	Code   bothy.Code `json:"code"`
	Detail string     `json:"detail"`
	Hint   string     `json:"hint"`

	err *bothy.Error
}

const problemType = "application/problem+json"

// problemOf turns any error into what the caller is told of it.
func problemOf(err error) *Problem {
	var e *bothy.Error
	switch {
	case errors.As(err, &e):
	case errors.Is(err, context.DeadlineExceeded):
		e = bothy.Errorf(bothy.CodeTimeout, "the server gave up waiting").WithHint("Try again, with more time.").Because(err)
	default:
		e = bothy.AsError(err)
	}
	return &Problem{Status: statusOf(e.Code), Code: e.Code, Detail: e.Detail, Hint: e.Hint, err: e}
}

// Error implements error.
func (p *Problem) Error() string { return p.err.Error() }

// Unwrap leads to the error that the problem tells of.
func (p *Problem) Unwrap() error { return p.err }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="bothy"`)
	}
	if p.err != nil && p.err.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.err.RetryAfter.Seconds()))))
	}
	return h
}

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemType }

// fail answers with a problem, for handlers that are not huma's.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if cause := endedBy(r.Context()); cause != nil {
		err = cause
	}
	p := problemOf(err)
	note(r.Context(), p)
	if info := requestFrom(r.Context()); info != nil && info.outer != nil {
		failOuter(w, r, info.outer, p)
		return
	}
	for k, v := range p.GetHeaders() {
		w.Header()[k] = v
	}
	var b bytes.Buffer
	_ = encode(&b, p)
	w.Header().Set("Content-Type", problemType)
	w.Header().Set("Content-Length", strconv.Itoa(b.Len())) // whole before a refused body is
	w.WriteHeader(p.Status)
	_, _ = w.Write(b.Bytes())
}

func encode(w interface{ Write([]byte) (int, error) }, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// huma keeps these in package variables. This package is the only one that
// uses huma, so it may set them.
func init() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return newProblem(nil, status, msg, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		p := newProblem(ctx.Operation(), status, msg, errs)
		note(ctx.Context(), p)
		return p
	}
	// A misspelt field must be refused, also where only its case is wrong.
	huma.ValidateStrictCasing = true
	huma.DefaultArrayNullable = false
	huma.ErrorFormatter = func(format string, values ...any) string {
		for i, v := range values {
			if n, ok := v.(float64); ok {
				values[i] = plainNumber(n)
			}
		}
		return fmt.Sprintf(format, values...)
	}
}

// newProblem says in our words what huma found wrong with a request.
func newProblem(op *huma.Operation, status int, msg string, errs []error) *Problem {
	switch status {
	case http.StatusRequestEntityTooLarge:
		return problemOf(tooLarge())
	case http.StatusUnsupportedMediaType:
		return problemOf(bothy.Errorf(bothy.CodeMediaType, "the body's content type is not one that this call takes").
			WithHint("Send JSON with the header \"Content-Type: application/json\"."))
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return problemOf(bothy.Errorf(bothy.CodeInvalid, "%s", describe(msg, errs)).WithHint("%s", advise(op, errs)))
	}
	return problemOf(fmt.Errorf("%s: %w", msg, errors.Join(errs...)))
}

// describe puts up to three findings into a sentence.
func describe(msg string, errs []error) string {
	var parts []string
	for _, err := range errs {
		var d *huma.ErrorDetail
		if errors.As(err, &d) {
			parts = append(parts, describeOne(d))
		} else {
			parts = append(parts, err.Error())
		}
	}
	slices.Sort(parts) // huma walks over maps
	switch {
	case len(parts) == 0:
		return msg
	case len(parts) > 3:
		parts = append(parts[:3], fmt.Sprintf("and %d more", len(parts)-3))
	}
	return strings.Join(parts, "; ")
}

func describeOne(d *huma.ErrorDetail) string {
	where, what := d.Location, d.Message
	if where == "body" {
		return "the body is not right: " + what
	}
	for prefix, name := range map[string]string{"body.": "", "query.": "query parameter ", "path.": "path parameter ", "header.": "header "} {
		if rest, ok := strings.CutPrefix(where, prefix); ok {
			where = name + rest
			break
		}
	}
	return where + ": " + what + valueAtFault(d)
}

// valueAtFault repeats short plain values, and nothing that could be a secret.
func valueAtFault(d *huma.ErrorDetail) string {
	if strings.Contains(d.Location, "secrets") {
		return ""
	}
	switch v := d.Value.(type) {
	case string:
		if v != "" && len(v) <= 80 {
			return fmt.Sprintf(", not %q", v)
		}
	case float64:
		return ", not " + plainNumber(v)
	case int64, bool:
		return fmt.Sprintf(", not %v", v)
	}
	return ""
}

// plainNumber writes a number as people do: %v makes 1e+08 of a large one.
func plainNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func advise(op *huma.Operation, errs []error) string {
	const look = "GET /openapi.json, or open /docs, to see what this call takes."
	if op == nil {
		return look
	}
	for _, err := range errs {
		var d *huma.ErrorDetail
		if !errors.As(err, &d) {
			continue
		}
		switch {
		case d.Message == "unexpected property" && strings.Count(d.Location, ".") == 1:
			if m, ok := d.Value.(map[string]any); ok && len(m) > 0 {
				if names := bodyFields(op); len(names) > 0 {
					return "The fields are: " + strings.Join(names, ", ") + "."
				}
			}
		case d.Message == "unknown query parameter":
			return "The query parameters are: " + strings.Join(queryParameters(op), ", ") + "."
		}
	}
	return look
}

func queryParameters(op *huma.Operation) []string {
	names := []string{}
	for _, p := range op.Parameters {
		if p.In == "query" {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return []string{"none"}
	}
	return names
}

func bodyFields(op *huma.Operation) []string {
	c, _ := op.Metadata["call"].(call)
	return c.fields
}

func tooLarge() error {
	return bothy.Errorf(bothy.CodeTooLarge, "the body is larger than %d MiB", maxJSONBytes>>20).
		WithHint("Send large files with PUT /v1/sandboxes/{id}/files, which has no bound.")
}
