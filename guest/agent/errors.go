package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
)

// codes maps each kind of error to its codes in Connect and HTTP; any other is
// internal.
var codes = map[bothy.Code]struct {
	connect connect.Code
	http    int
}{
	bothy.CodeInvalid:         {connect.CodeInvalidArgument, http.StatusBadRequest},
	bothy.CodePathInvalid:     {connect.CodeInvalidArgument, http.StatusBadRequest},
	bothy.CodeIsADirectory:    {connect.CodeInvalidArgument, http.StatusBadRequest},
	bothy.CodeNotADirectory:   {connect.CodeInvalidArgument, http.StatusBadRequest},
	bothy.CodeCommandInvalid:  {connect.CodeInvalidArgument, http.StatusBadRequest},
	bothy.CodeUnauthenticated: {connect.CodeUnauthenticated, http.StatusUnauthorized},
	bothy.CodeUserNotFound:    {connect.CodeUnauthenticated, http.StatusUnauthorized},
	bothy.CodePermission:      {connect.CodePermissionDenied, http.StatusForbidden},
	bothy.CodeFileNotFound:    {connect.CodeNotFound, http.StatusNotFound},
	bothy.CodeProcessNotFound: {connect.CodeNotFound, http.StatusNotFound},
	bothy.CodeContextNotFound: {connect.CodeNotFound, http.StatusNotFound},
	bothy.CodeCommandNotFound: {connect.CodeNotFound, http.StatusNotFound},
	bothy.CodeNotFound:        {connect.CodeNotFound, http.StatusNotFound},
	bothy.CodeFileExists:      {connect.CodeAlreadyExists, http.StatusConflict},
	bothy.CodeConflict:        {connect.CodeFailedPrecondition, http.StatusConflict},
	bothy.CodeTooLarge:        {connect.CodeResourceExhausted, http.StatusRequestEntityTooLarge},
	bothy.CodeCapacity:        {connect.CodeResourceExhausted, http.StatusServiceUnavailable},
	bothy.CodeDiskFull:        {connect.CodeResourceExhausted, http.StatusInsufficientStorage},
	bothy.CodeUnsupported:     {connect.CodeUnimplemented, http.StatusNotImplemented},
	bothy.CodeTimeout:         {connect.CodeDeadlineExceeded, http.StatusGatewayTimeout},
}

// connectError gives an error its Connect form, with the kind and the hint as a detail.
func connectError(err error) error {
	var done *connect.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
	}
	e := bothy.AsError(err)
	code, ok := codes[e.Code]
	if !ok {
		code.connect = connect.CodeInternal
	}
	out := connect.NewError(code.connect, errors.New(e.Detail))
	if d, derr := connect.NewErrorDetail(&guestpb.ErrorInfo{Code: string(e.Code), Hint: e.Hint}); derr == nil {
		out.AddDetail(d)
	}
	return out
}

// errorInterceptor gives the errors of all handlers their Connect form.
type errorInterceptor struct{}

func (errorInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		return res, connectError(err)
	}
}

func (errorInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (errorInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, c connect.StreamingHandlerConn) error {
		return connectError(next(ctx, c))
	}
}

// writeConnectError refuses a Connect call before it reaches its handler.
func writeConnectError(w http.ResponseWriter, r *http.Request, err error) {
	_ = connect.NewErrorWriter().Write(w, r, connectError(err))
}

// httpError is the body of a failed plain HTTP call. Code and Message are
// envd's.
type httpError struct {
	Code    int        `json:"code"`
	Message string     `json:"message"`
	Kind    bothy.Code `json:"bothy_code"`
	Hint    string     `json:"hint,omitempty"`
}

func newHTTPError(err error) httpError {
	e := bothy.AsError(err)
	status := http.StatusInternalServerError
	if c, ok := codes[e.Code]; ok {
		status = c.http
	}
	return httpError{status, e.Detail, e.Code, e.Hint}
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	e := newHTTPError(err)
	w.Header().Del("Content-Length")
	writeJSON(w, e.Code, e)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
