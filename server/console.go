package server

import (
	"path/filepath"
	"time"

	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/console"
	"github.com/bothy-dev/bothy/session"
)

// withLogins has browsers log in.
func (s *Server) withLogins(a api.Services) (api.Services, error) {
	var err error
	a.Sessions, err = session.Open(filepath.Join(s.config.Home, "sessions.json"), time.Now)
	return a, err
}

// openConsole serves the pages next to the REST API.
func (s *Server) openConsole() {
	s.api.Handle("GET "+console.Path, console.Handler())
	s.api.Handle("GET /{$}", console.Front(s.api.NoRoute()))
}
