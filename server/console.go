package server

import (
	"context"
	"path/filepath"
	"time"

	"github.com/bothy-dev/bothy/access/session"
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/console"
)

// withLogins adds browser sessions to the API's services.
func (s *Server) withLogins(ctx context.Context, a api.Services) (api.Services, error) {
	a.Sessions = session.New(s.store, time.Now)
	s.logins = a.Sessions
	return a, a.Sessions.TakeFile(ctx, filepath.Join(s.config.Home, "sessions.json"))
}

// openConsole serves the console's pages on the API's listener.
func (s *Server) openConsole() {
	s.api.Handle("GET "+console.Path, console.Handler())
	s.api.Handle("GET /{$}", console.Front(s.api.NoRoute()))
}
