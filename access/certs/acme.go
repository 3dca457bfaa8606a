package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/caddyserver/certmagic"

	"github.com/bothy-dev/bothy"
)

// ACMEOptions configure ACME.
type ACMEOptions struct {
	Domains []string
	Email   string
	// DirectoryURL is the authority; Let's Encrypt when empty. CAFile has the CA
	// certificates that verify it; the host's bundle when empty.
	DirectoryURL string
	CAFile       string
	// Dir stores the account, certificates and keys.
	Dir string
	// HTTPPort and TLSPort receive the authority's challenges; 0 disables that
	// challenge.
	HTTPPort, TLSPort int
	Log               *slog.Logger
}

// ACME obtains certificates by RFC 8555 and renews them in the background. Until
// there is one, connections fail, and the log says why.
type ACME struct {
	domains []string
	config  *certmagic.Config
	cache   *certmagic.Cache
	stop    context.CancelFunc
	closing sync.Once
}

var _ Source = (*ACME)(nil)

// OpenACME starts obtaining certificates.
func OpenACME(o ACMEOptions) (*ACME, error) {
	roots, err := rootsOf(o.CAFile)
	if err != nil {
		return nil, err
	}
	log := zapLogger(o.Log)
	a := &ACME{domains: o.Domains}
	a.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return a.config, nil },
		Logger:           log,
	})
	a.config = certmagic.New(a.cache, certmagic.Config{Storage: &certmagic.FileStorage{Path: o.Dir}, Logger: log})
	issuer := certmagic.ACMEIssuer{
		CA: o.DirectoryURL, Email: o.Email, Agreed: true, TrustedRoots: roots, Logger: log,
		DisableHTTPChallenge: o.HTTPPort == 0, DisableTLSALPNChallenge: o.TLSPort == 0,
		AltHTTPPort: o.HTTPPort, AltTLSALPNPort: o.TLSPort,
	}
	if issuer.CA == "" {
		issuer.CA = certmagic.LetsEncryptProductionCA
	}
	issuer.TestCA = issuer.CA // no other authority to fall back to
	a.config.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(a.config, issuer)}
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	if err := a.config.ManageAsync(ctx, o.Domains); err != nil {
		a.Close()
		return nil, bothy.Errorf(bothy.CodeInvalid, "tls.acme: no certificate can be issued for %v: %v", o.Domains, err).
			WithHint("Give names that lead to this host from the internet.")
	}
	return a, nil
}

// Config implements Source.
func (a *ACME) Config() *tls.Config {
	c := a.config.TLSConfig()
	c.NextProtos = slices.Insert(c.NextProtos, 0, Protocols...)
	return c
}

// Names implements Source.
func (a *ACME) Names() []string { return a.domains }

// Reload implements Source. Certificates are renewed without it.
func (a *ACME) Reload() error { return nil }

// Close implements Source.
func (a *ACME) Close() error {
	a.closing.Do(func() {
		a.stop()
		a.cache.Stop()
	})
	return nil
}

func rootsOf(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "tls.acme.ca_file: %s cannot be read", file).WithHint("Check the path.").Because(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, bothy.Errorf(bothy.CodeInvalid, "tls.acme.ca_file: %s holds no certificate", file).WithHint("Give certificates in PEM.")
	}
	return pool, nil
}
