package bothy

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is a stable, documented name for a kind of error. Programs match on it;
// people read Detail and Hint.
type Code string

// The codes that the service returns. Adding one is fine; renaming one breaks
// every client.
const (
	CodeInvalid          Code = "invalid_argument"
	CodeUnauthenticated  Code = "unauthenticated"
	CodeTokenExpired     Code = "token_expired"
	CodeForbidden        Code = "missing_scope"
	CodeNotFound         Code = "not_found"
	CodeTemplateNotFound Code = "template_not_found"
	CodeTemplateInvalid  Code = "template_invalid"
	CodeTemplateInUse    Code = "template_in_use"
	CodeProjectNotFound  Code = "project_not_found"
	CodeSandboxNotFound  Code = "sandbox_not_found"
	CodeSnapshotNotFound Code = "snapshot_not_found"
	CodeProcessNotFound  Code = "process_not_found"
	CodeContextNotFound  Code = "context_not_found"
	CodeSandboxPaused    Code = "sandbox_paused"
	CodeSandboxEnded     Code = "sandbox_ended"
	CodeSandboxNotReady  Code = "sandbox_not_ready"
	CodeConflict         Code = "conflict"
	CodeIdempotency      Code = "idempotency_mismatch"
	CodeOutcomeUnknown   Code = "outcome_unknown"
	CodeQuota            Code = "quota_exceeded"
	CodeBudget           Code = "budget_exceeded"
	CodeCapacity         Code = "capacity"
	CodeRateLimited      Code = "rate_limited"
	CodeTooLarge         Code = "too_large"
	CodePathInvalid      Code = "path_invalid"
	CodeFileNotFound     Code = "file_not_found"
	CodeFileExists       Code = "file_exists"
	CodeNotADirectory    Code = "not_a_directory"
	CodeIsADirectory     Code = "is_a_directory"
	CodePermission       Code = "permission_denied"
	CodeDiskFull         Code = "disk_full"
	CodeCommandNotFound  Code = "command_not_found"
	CodeCommandInvalid   Code = "command_invalid"
	CodeCommandCancelled Code = "command_cancelled"
	CodeCloneFailed      Code = "clone_failed"
	CodeUserNotFound     Code = "user_not_found"
	CodeSnapshotDamaged  Code = "snapshot_damaged"
	CodeSnapshotInUse    Code = "snapshot_in_use"
	CodeEngine           Code = "engine_failed"
	CodeEngineMissing    Code = "engine_unavailable"
	CodeNoAcceleration   Code = "acceleration_unavailable"
	CodeGuest            Code = "guest_unreachable"
	CodeTimeout          Code = "timeout"
	CodeShuttingDown     Code = "shutting_down"
	CodeStore            Code = "store_unavailable"
	CodeUnsupported      Code = "unsupported"
	CodeMethodNotAllowed Code = "method_not_allowed"
	CodeMediaType        Code = "unsupported_media_type"
	CodeMisdirected      Code = "misdirected_request"
	CodeInternal         Code = "internal"
)

// Error is what every service method returns when it fails for a reason that
// the caller can be told. Op and Err are for the log; Code, Detail and Hint
// are for the caller.
type Error struct {
	// Op names the operation, such as "sandbox.create".
	Op string
	// Code is the stable kind of the failure.
	Code Code
	// Detail is one sentence that says what is wrong, with the value at fault.
	Detail string
	// Hint is one sentence that says what to do about it. May be empty.
	Hint string
	// RetryAfter is set where trying again later can succeed.
	RetryAfter time.Duration
	// Err is the cause. It goes to the log and never to a caller.
	Err error
}

// Error returns all of it, including the cause, for the log.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op + ": ")
	}
	b.WriteString(string(e.Code))
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// WithHint returns e with a hint added. It changes e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// Because returns e with its cause set. It changes e.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// Errorf makes an Error with a code and a detail for the caller.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// ErrorCode returns the code of the first Error in err's chain, CodeInternal
// for any other error, and "" for nil.
func ErrorCode(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// AsError returns the first Error in err's chain, or an internal one that
// hides err's text from the caller.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Detail: "something failed inside the server", Hint: "The server's log has the details under this request's id.", Err: err}
}
