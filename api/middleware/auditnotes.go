package middleware

import (
	"cmp"
	"context"
)

// Commanded and Touched are implemented by inputs that contain the command, and the affected
// object, in addition to the path. A Touched output contains what was created.
type (
	Commanded interface{ AuditCommand() string }
	Touched   interface{ AuditObject() string }
	// Made is implemented by an output that contains what was created.
	Made interface {
		AuditOutput() (sandbox, object string)
	}
)

// NoteInput records a call's input for the audit.
func NoteInput(ctx context.Context, in any) {
	info := RequestFrom(ctx)
	if info == nil {
		return
	}
	if x, ok := in.(Commanded); ok {
		info.command = x.AuditCommand()
	}
	if x, ok := in.(Touched); ok {
		info.object = x.AuditObject()
	}
}

// NoteOutput records what a call has created.
func NoteOutput(ctx context.Context, out any) {
	x, ok := out.(Made)
	info := RequestFrom(ctx)
	if info == nil || !ok {
		return
	}
	sandbox, object := x.AuditOutput()
	info.sandbox, info.object = cmp.Or(sandbox, info.sandbox), cmp.Or(object, info.object)
}
