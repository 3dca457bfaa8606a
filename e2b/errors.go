package e2b

import (
	"encoding/json"
	"net/http"

	"github.com/bothy-dev/bothy"
)

// failure is the body of every answer that reports one.
type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	// Name is Bothy's own code for it.
	Name bothy.Code `json:"error_code,omitempty"`
}

// statuses are those that differ from the REST API's, because clients depend on them.
var statuses = map[bothy.Code]int{
	bothy.CodeSandboxEnded:    http.StatusNotFound,
	bothy.CodeUnsupported:     http.StatusNotImplemented,
	bothy.CodeTemplateInvalid: http.StatusBadRequest,
	bothy.CodeSnapshotDamaged: http.StatusInternalServerError,
	bothy.CodeNoAcceleration:  http.StatusBadRequest,
	bothy.CodeIdempotency:     http.StatusConflict,
	bothy.CodeOutcomeUnknown:  http.StatusConflict,
	bothy.CodeGuest:           http.StatusInternalServerError,
}

func failureOf(status int, err *bothy.Error) failure {
	if s, ok := statuses[err.Code]; ok {
		status = s
	}
	f := failure{Code: status, Message: err.Detail, Name: err.Code}
	if err.Hint != "" {
		f.Message += ". " + err.Hint
	}
	return f
}

// Fail answers a call of the control API with an error.
func Fail(w http.ResponseWriter, _ *http.Request, status int, err *bothy.Error) {
	f := failureOf(status, err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Code)
	_ = json.NewEncoder(w).Encode(f)
}

func invalid(format string, args ...any) *bothy.Error {
	return bothy.Errorf(bothy.CodeInvalid, format, args...)
}

func unsupported(format string, args ...any) *bothy.Error {
	return bothy.Errorf(bothy.CodeUnsupported, format, args...)
}

func notFound(id string) *bothy.Error {
	return bothy.Errorf(bothy.CodeSandboxNotFound, "sandbox %q was not found", id)
}
