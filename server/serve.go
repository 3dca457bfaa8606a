package server

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/bothy-dev/bothy"
)

// Listen opens the API's listener, on which nothing is answered before Serve.
func (s *Server) Listen() error { return s.api.Listen() }

// Addr is the address that the API listens on, which is known after Listen.
func (s *Server) Addr() net.Addr { return s.api.Addr() }

// URL is where clients reach the API, which is known after Listen.
func (s *Server) URL() string { return s.api.URL() }

// Home is the folder of the server's state.
func (s *Server) Home() string { return s.config.Home }

// Log is the server's log.
func (s *Server) Log() *slog.Logger { return s.log }

// Serve takes over the sandboxes of the last server and answers requests until ctx
// ends, or another server has taken the database, which is an error. It then finishes the
// requests in flight. Sandboxes live on.
func (s *Server) Serve(ctx context.Context) error {
	adopted, err := s.lifecycle.Recover(ctx)
	if err != nil {
		s.log.Error("not everything of the last server could be recovered", "error", err)
	}
	if err := s.builder.Recover(ctx); err != nil {
		s.log.Error("not every build of the last server could be recovered", "error", err)
	}
	s.compareTemplates(ctx)
	stopAgents := func() {}
	if s.hosts == nil {
		stopAgents = s.runAgents()
	}
	defer stopAgents()
	stopCluster := s.runCluster()
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
	var lost error
	select {
	case err := <-served:
		return err
	case <-s.given:
		lost = bothy.Errorf(bothy.CodeConflict, "the other hosts have given this one up, so its sandboxes have ended here").
			WithHint("Start it again: it joins as the host that it was.")
		if s.hosts.Older() {
			lost = bothy.Errorf(bothy.CodeConflict, "the database is older than this host, as after a backup was restored; this server ends, and its sandboxes are kept, frozen").
				WithHint("Restore the newest backup, and start it again. docs/cluster.md says what else can be done.")
		}
	case <-s.storeLost:
		lost = bothy.Errorf(bothy.CodeConflict, "another server has taken over the database; this one ends, and its sandboxes live on").
			WithHint("See which server has it with `bothy doctor`, and give each a database of its own.")
	case <-ctx.Done():
	}
	s.log.Info("stopping; sandboxes live on", "sandboxes", s.lifecycle.Live())
	stopAgents()
	s.lifecycle.Drain()
	s.api.Drain()
	return errors.Join(lost, s.api.Close(), <-served)
}

// ReloadCertificate reads the TLS certificate again, and reports whether there is TLS. A
// certificate that cannot be read is logged, and the old one stays.
func (s *Server) ReloadCertificate() bool {
	if s.certs == nil {
		return false
	}
	if err := s.certs.Reload(); err != nil {
		s.log.Error("the certificate stays the old one", "error", err)
	}
	return true
}
