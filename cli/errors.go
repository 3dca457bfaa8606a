package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/exitcode"
)

// The exit codes of every command except run, exec and sh, which exit with the
// code of what they ran.
const (
	exitDone        = exitcode.Done
	exitFailed      = exitcode.Failed
	exitUsage       = exitcode.Usage
	exitInterrupted = exitcode.Interrupted
	// exitPipe is what a shell expects if the output's reader went away.
	exitPipe = 141
)

// exitCode ends a command that has printed all there is to say.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// wrongUsage is an invalid command line.
type wrongUsage struct {
	detail, hint string
}

func (e *wrongUsage) Error() string { return e.detail }

// usageError turns an error of the flag parser into a usage error of cmd.
func usageError(cmd *cobra.Command, err error) error {
	return &wrongUsage{detail: flagDetail(err), hint: fmt.Sprintf("`%s --help` shows how to use it.", cmd.CommandPath())}
}

// usagef is wrong usage in our own words.
func usagef(hint, format string, args ...any) error {
	return &wrongUsage{detail: fmt.Sprintf(format, args...), hint: hint}
}

// usage makes an argument check fail as wrong usage.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(cmd, err)
		}
		return nil
	}
}

// finish prints an error, if there is one, and returns the exit code.
func (a *app) finish(err error) int {
	var code exitCode
	if err == nil {
		return exitDone
	}
	if errors.As(err, &code) {
		return int(code)
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitPipe
	}
	a.printError(err)
	return codeFor(err)
}

func (a *app) printError(err error) {
	detail, hint := describe(err)
	code := bothy.CodeInvalid // of wrong usage
	var wrong *wrongUsage
	var e *bothy.Error
	if errors.As(err, &e) {
		code = e.Code
	}
	if a.json && (e != nil || errors.As(err, &wrong)) {
		if body := a.last.problem(); body != nil {
			_ = writeLine(a.stderr, body)
		} else { // errors found on this side look the same
			_ = json.NewEncoder(a.stderr).Encode(map[string]string{"code": string(code), "detail": detail, "hint": hint})
		}
		return
	}
	fmt.Fprintf(a.stderr, "bothy: %s\n", detail)
	if hint != "" {
		fmt.Fprintf(a.stderr, "  hint: %s\n", hint)
	}
}

// describe returns the sentence and the hint for a person.
func describe(err error) (detail, hint string) {
	var wrong *wrongUsage
	var e *bothy.Error
	switch {
	case errors.As(err, &wrong):
		return wrong.detail, wrong.hint
	case errors.As(err, &e) && e.Detail != "":
		// What was being done stands before the error of the API, which also says what programs need.
		before, _, _ := strings.Cut(err.Error(), e.Error())
		return before + e.Detail, inCommands(e.Hint)
	case errors.Is(err, context.Canceled):
		return "interrupted", ""
	}
	return err.Error(), ""
}

// inCommands translates a hint of the API into the words of the command line.
func inCommands(hint string) string {
	hint = orCall.ReplaceAllString(hint, "$1$2")
	hint = stateCall.ReplaceAllString(hint, "bothy $2 $1")
	return lookCall.ReplaceAllString(hint, "The command's --help says what it takes.")
}

var (
	stateCall = regexp.MustCompile(`POST /v1/sandboxes/([^\s/]+)/(resume|restart)\b`)
	// orCall is a command next to a call, in either order.
	orCall   = regexp.MustCompile("(`bothy [^`]+`) or (?:GET|POST) /v1/[^\\s,.]+|(?:GET|POST) /v1/[^\\s,]+, or (`bothy [^`]+`)")
	lookCall = regexp.MustCompile(`^GET /openapi\.json, or open /docs, .*$`)
)

func codeFor(err error) int {
	if wrong := (*wrongUsage)(nil); errors.As(err, &wrong) {
		return exitUsage
	}
	return exitcode.Of(err)
}
