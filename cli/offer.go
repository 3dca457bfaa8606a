package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/templates"
)

// createOffering creates a sandbox. Where its template is a built-in one that is missing, it asks a person at the
// terminal how to get it, and tries again.
func (a *app) createOffering(ctx context.Context, s *session, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	// The creation is not interrupted: its answer has the id that must be terminated.
	sandbox, err := a.create(context.WithoutCancel(ctx), s, req)
	if bothy.ErrorCode(err) != bothy.CodeTemplateNotFound || req.SnapshotID != "" {
		return sandbox, err
	}
	name := req.Template
	if name == "" {
		name = bothy.DefaultTemplate
	}
	got, offerErr := a.offerTemplate(ctx, s, name)
	if offerErr != nil {
		return nil, offerErr
	}
	if !got {
		return nil, err
	}
	return a.create(context.WithoutCancel(ctx), s, req)
}

// offerTemplate asks a person at the terminal whether to build or to pull a built-in template, and does it. It asks
// nothing where nobody is there to answer.
func (a *app) offerTemplate(ctx context.Context, s *session, name string) (got bool, err error) {
	if a.json || !isTerminal(a.stdin) || !isTerminal(a.stderr) || !slices.Contains(templates.Names(), name) {
		return false, nil
	}
	here := a.servedHere()
	fmt.Fprintf(a.stderr, "There is no template %s yet.\n  Enter builds it, in a minute or two.\n", name)
	if here {
		fmt.Fprintln(a.stderr, "  The path of a release's file takes it from there, in seconds.")
	}
	fmt.Fprint(a.stderr, "  Ctrl+D does neither.\n> ")
	line, err := a.readLine(ctx)
	switch {
	case errors.Is(err, io.EOF):
		fmt.Fprintln(a.stderr)
		return false, nil
	case err != nil:
		return false, err
	case line == "":
		_, err = a.buildTemplate(ctx, s, bothy.TemplateBuild{Name: name})
	case !here:
		return false, usagef("Press Enter, or run bothy template pull on the server's host.", "a file cannot be taken from here")
	default:
		_, _, err = a.pullTemplate(ctx, line, pullFlags{})
	}
	return err == nil, err
}

// readLine reads a line that is typed at the terminal, until ctx ends.
func (a *app) readLine(ctx context.Context) (string, error) {
	type read struct {
		line string
		err  error
	}
	done := make(chan read, 1)
	go func() {
		b := make([]byte, 4096) // the most that a terminal has in a line
		n, err := a.stdin.Read(b)
		if n > 0 {
			err = nil
		}
		done <- read{strings.TrimSpace(string(b[:n])), err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-done:
		return r.line, r.err
	}
}
