// Package problem is the form in which the API reports failures, and the HTTP status of
// each code.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
)

// Statuses maps each code to its HTTP status.
var Statuses = map[bothy.Code]int{
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
	bothy.CodeCloneFailed:      http.StatusUnprocessableEntity,
	bothy.CodeOutcomeUnknown:   http.StatusConflict,
	bothy.CodeUserNotFound:     http.StatusBadRequest,
	bothy.CodeSnapshotDamaged:  http.StatusUnprocessableEntity,
	bothy.CodeSnapshotInUse:    http.StatusConflict,
	bothy.CodeEngine:           http.StatusInternalServerError,
	bothy.CodeEngineMissing:    http.StatusServiceUnavailable,
	bothy.CodeNoAcceleration:   http.StatusUnprocessableEntity,
	bothy.CodeGuest:            http.StatusBadGateway,
	bothy.CodeTimeout:          http.StatusGatewayTimeout,
	bothy.CodeShuttingDown:     http.StatusServiceUnavailable,
	bothy.CodeStore:            http.StatusServiceUnavailable,
	bothy.CodeUnsupported:      http.StatusUnprocessableEntity,
	bothy.CodeMethodNotAllowed: http.StatusMethodNotAllowed,
	bothy.CodeMediaType:        http.StatusUnsupportedMediaType,
	bothy.CodeMisdirected:      http.StatusMisdirectedRequest,
	bothy.CodeInternal:         http.StatusInternalServerError,
}

func statusOf(c bothy.Code) int {
	if s, ok := Statuses[c]; ok {
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

const ContentType = "application/problem+json"

// Of turns any error into the problem for the caller.
func Of(err error) *Problem {
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

// Cause is the error behind the problem.
func (p *Problem) Cause() *bothy.Error { return p.err }

// Unwrap returns the error behind the problem.
func (p *Problem) Unwrap() error { return p.err }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="bothy"`)
	}
	if after := p.retryAfter(); after > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
	}
	return h
}

// passing are the codes of failures that pass by themselves. Clients repeat a request only if
// they are told when.
var passing = []bothy.Code{bothy.CodeCapacity, bothy.CodeShuttingDown, bothy.CodeStore, bothy.CodeMisdirected}

const passesIn = 2 * time.Second

func (p *Problem) retryAfter() time.Duration {
	if p.err != nil && p.err.RetryAfter > 0 {
		return p.err.RetryAfter
	}
	if slices.Contains(passing, p.Code) {
		return passesIn
	}
	return 0
}

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return ContentType }

func Encode(w interface{ Write([]byte) (int, error) }, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
