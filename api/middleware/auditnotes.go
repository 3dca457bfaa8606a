package middleware

import (
	"cmp"
	"context"
)

// Commanded and Touched are inputs that say what is run, and what it is done to, other
// than in the path. An output that is Touched says what was made.
type (
	Commanded interface{ AuditCommand() string }
	Touched   interface{ AuditObject() string }
	// Made is an output that says what was made.
	Made interface {
		AuditOutput() (sandbox, object string)
	}
)

// NoteInput notes what a call's input says for the audit.
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

// NoteOutput notes what a call has made.
func NoteOutput(ctx context.Context, out any) {
	x, ok := out.(Made)
	info := RequestFrom(ctx)
	if info == nil || !ok {
		return
	}
	sandbox, object := x.AuditOutput()
	info.sandbox, info.object = cmp.Or(sandbox, info.sandbox), cmp.Or(object, info.object)
}
