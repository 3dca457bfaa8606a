package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/bothy-dev/bothy"
)

// Shells are the persistent shells of sandboxes: each a bash whose directory and variables
// persist. bothy.DefaultShell is the one that every sandbox has.
type Shells struct{ conn *conn }

func shellPath(id, shell, rest string) string {
	return sandboxPath(id, "/shells/", url.PathEscape(shell), rest)
}

// Create makes a shell.
func (s *Shells) Create(ctx context.Context, id string, req bothy.ShellCreate) (*bothy.Shell, error) {
	return get[bothy.Shell](ctx, s.conn, http.MethodPost, sandboxPath(id, "/shells"), nil, req)
}

// List returns the shells of a sandbox that were made or used.
func (s *Shells) List(ctx context.Context, id string) ([]bothy.Shell, error) {
	return items[bothy.Shell](ctx, s.conn, http.MethodGet, sandboxPath(id, "/shells"), nil, nil)
}

// Exec runs a command to its end.
func (s *Shells) Exec(ctx context.Context, id, shell string, req bothy.ShellRequest) (*bothy.ShellResult, error) {
	return get[bothy.ShellResult](ctx, s.conn, http.MethodPost, shellPath(id, shell, "/exec"), nil, req)
}

// ExecStream runs a command and calls fn with its output as it arrives, and with its end. When
// ctx ends, or fn fails, the command is ended.
func (s *Shells) ExecStream(ctx context.Context, id, shell string, req bothy.ShellRequest, fn func(bothy.ShellEvent) error) error {
	final := false
	err := stream(ctx, s.conn, http.MethodPost, shellPath(id, shell, "/exec"), nil, req, func(e bothy.ShellEvent) error {
		final = final || e.IsFinal
		return fn(e)
	})
	if err == nil && !final {
		return s.conn.brokenOff(ctx, io.ErrUnexpectedEOF)
	}
	return err
}

// Interrupt ends the command that runs in a shell, but not the shell. If none runs, the error is
// CodeConflict.
func (s *Shells) Interrupt(ctx context.Context, id, shell string) error {
	return s.conn.call(ctx, http.MethodPost, shellPath(id, shell, "/interrupt"), nil, nil, nil)
}

// Restart resets a shell, and ends what it started.
func (s *Shells) Restart(ctx context.Context, id, shell string) error {
	return s.conn.call(ctx, http.MethodPost, shellPath(id, shell, "/restart"), nil, nil, nil)
}

// Delete ends a shell, and what it started.
func (s *Shells) Delete(ctx context.Context, id, shell string) error {
	return s.conn.call(ctx, http.MethodDelete, shellPath(id, shell, ""), nil, nil, nil)
}
