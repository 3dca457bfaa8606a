// Package exitcode holds the exit codes of the programs that people run.
package exitcode

import (
	"context"
	"errors"

	"github.com/bothy-dev/bothy"
)

const (
	Done     = 0
	Failed   = 1
	Usage    = 2
	NotFound = 3
	Refused  = 4
	// NoCommand is a shell's code for a command that does not exist.
	NoCommand = 127
	// Interrupted is what a shell expects after Ctrl-C.
	Interrupted = 130
)

// codes are the exit codes of failures that have one of their own.
var codes = map[bothy.Code]int{
	bothy.CodeInvalid:        Usage,
	bothy.CodePathInvalid:    Usage,
	bothy.CodeCommandInvalid: Usage,

	bothy.CodeCommandNotFound: NoCommand,

	bothy.CodeNotFound:         NotFound,
	bothy.CodeTemplateNotFound: NotFound,
	bothy.CodeProjectNotFound:  NotFound,
	bothy.CodeSandboxNotFound:  NotFound,
	bothy.CodeSnapshotNotFound: NotFound,
	bothy.CodeProcessNotFound:  NotFound,
	bothy.CodeContextNotFound:  NotFound,
	bothy.CodeFileNotFound:     NotFound,

	bothy.CodeUnauthenticated: Refused,
	bothy.CodeTokenExpired:    Refused,
	bothy.CodeForbidden:       Refused,
	bothy.CodeQuota:           Refused,
	bothy.CodeBudget:          Refused,
	bothy.CodeCapacity:        Refused,
	bothy.CodeRateLimited:     Refused,
}

// Of returns the exit code of a failure.
func Of(err error) int {
	if errors.Is(err, context.Canceled) {
		return Interrupted
	}
	if e, ok := errors.AsType[*bothy.Error](err); ok {
		if code, ok := codes[e.Code]; ok {
			return code
		}
	}
	return Failed
}
