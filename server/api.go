package server

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/bothy-dev/bothy/access/certs"
	"github.com/bothy-dev/bothy/api"
)

// apiConfig returns the API's settings, and opens the TLS certificates they name.
func (s *Server) apiConfig() (c api.Config, err error) {
	c = api.Config{
		Listen: s.config.Listen, AllowedHosts: s.config.AllowedHosts, Version: s.version, AuditReads: s.config.Audit.Reads,
		Observe: s.metrics.Request, Problems: s.problems, Frozen: s.membership.frozen, LinkKey: s.vault.Derive("links"), LinkDomain: s.config.LinkDomain,
		TrustedProxies: s.config.TrustedProxies, HostKeySecret: s.vault.Derive("ssh host keys"),
		Grace: time.Duration(s.config.ShutdownSeconds) * time.Second,
	}
	if c.Grace == 0 {
		c.Grace = -1
	}
	if s.config.E2B.Enabled && s.config.LinkDomain != "localhost" {
		c.AllowedHosts = append(slices.Clone(c.AllowedHosts), "api."+s.config.LinkDomain)
	}
	c.Connections, c.ConnectionsPerAddress = s.connections()
	t := s.config.TLS
	switch {
	case t.CertFile != "":
		s.certs, err = certs.OpenFiles(t.CertFile, t.KeyFile, s.log)
	case len(t.ACME.Domains) > 0:
		a := t.ACME
		s.certs, err = certs.OpenACME(certs.ACMEOptions{
			Domains: a.Domains, Email: a.Email, DirectoryURL: a.DirectoryURL, CAFile: a.CAFile, Dir: filepath.Join(s.config.Home, "certs"),
			HTTPPort: a.HTTPPort, TLSPort: a.TLSPort, Log: s.log,
		})
	default:
		return c, nil
	}
	if err != nil {
		return c, err
	}
	s.undo.Add(func() { s.certs.Close() })
	c.TLS = s.certs.Config()
	if names := s.certs.Names(); len(names) > 0 {
		c.Name = names[0]
		c.AllowedHosts = append(slices.Clone(c.AllowedHosts), names...)
	}
	return c, nil
}
