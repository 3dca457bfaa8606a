package server

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/bothy-dev/bothy"
)

// Listen opens the API's listener. Requests wait until Serve.
func (s *Server) Listen() error { return s.api.Listen() }

// Addr is the API's address. It is valid after Listen.
func (s *Server) Addr() net.Addr { return s.api.Addr() }

// URL is where clients reach the API. It is valid after Listen.
func (s *Server) URL() string { return s.api.URL() }

// Home is the folder of the server's state.
func (s *Server) Home() string { return s.config.Home }

// Log is the server's log.
func (s *Server) Log() *slog.Logger { return s.log }

// Serve recovers the previous server's sandboxes and answers requests until ctx ends. It also
// stops, with an error, if another server takes the database or the cluster gives this host up.
// It then finishes the requests in flight. Sandboxes keep running.
func (s *Server) Serve(ctx context.Context) error {
	adopted, err := s.lifecycle.Recover(ctx)
	if err != nil {
		s.log.Error("cannot recover every sandbox of the previous server", "error", err)
	}
	if err := s.builder.Recover(ctx); err != nil {
		s.log.Error("cannot recover every template build of the previous server", "error", err)
	}
	s.membership.Compare(ctx)
	stopAgents := s.membership.serveAgents()
	defer stopAgents()
	stopCluster := s.membership.run()
	defer stopCluster()
	s.lifecycle.StartPool()
	go s.lifecycle.OpenEngines(ctx)
	go s.collectTemplates(ctx)
	s.log.Info("ready", "url", s.api.URL(), "home", s.config.Home, "engine", s.defaultBuild(), "sandboxes", adopted)
	served := make(chan error, 1)
	go func() {
		served <- s.api.Serve()
		close(served)
	}()
	s.builder.Resume()
	var lost error
	select {
	case err := <-served:
		return err
	case lost = <-s.givenUp:
	case <-s.storeLost:
		lost = bothy.Errorf(bothy.CodeConflict, "another server has taken over the database; this one stops, and its sandboxes keep running").
			WithHint("Find the other server with `bothy doctor`, and give each server its own database.")
	case <-ctx.Done():
	}
	s.log.Info("stopping; sandboxes keep running", "sandboxes", s.lifecycle.Live())
	stopAgents()
	s.lifecycle.Drain()
	s.api.Drain()
	return errors.Join(lost, s.api.Close(), <-served)
}

// ReloadCertificate reads the TLS certificate again, and reports whether TLS is on. If the new
// certificate cannot be read, that is logged and the old one stays in use.
func (s *Server) ReloadCertificate() bool {
	if s.certs == nil {
		return false
	}
	if err := s.certs.Reload(); err != nil {
		s.log.Error("cannot reload the certificate; the old one stays in use", "error", err)
	}
	return true
}
