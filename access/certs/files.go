// Package certs provides the API's TLS certificate: from files, or from an ACME
// authority such as Let's Encrypt. server opens a source as the settings say, and
// its listeners use it.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// lookEvery is how often the files are checked for changes, when connections arrive.
const lookEvery = time.Second

// Source provides certificates.
type Source interface {
	// Config returns the configuration of a listener.
	Config() *tls.Config
	// Names returns the certificate's names, without wildcards.
	Names() []string
	// Reload loads a new certificate, if the source does not do so by itself.
	Reload() error
	Close() error
}

// Files is a certificate and its key in two PEM files, which are read again when
// they change. If the pair cannot be read, for example while it is replaced, the
// previous one stays in use.
type Files struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	looked time.Time
	seen   [2]stamp
	pair   *tls.Certificate
}

// stamp detects changes of a file.
type stamp struct {
	changed time.Time
	size    int64
}

var _ Source = (*Files)(nil)

// OpenFiles reads the pair.
func OpenFiles(certFile, keyFile string, log *slog.Logger) (*Files, error) {
	f := &Files{certFile: certFile, keyFile: keyFile, log: log}
	if err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Protocols are those that the server speaks over TLS, the preferred one first.
var Protocols = []string{"h2", "http/1.1"}

// Config implements Source.
func (f *Files) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: Protocols, GetCertificate: f.current}
}

// Reload implements Source.
func (f *Files) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.stamps()
	pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return bothy.Errorf(bothy.CodeInvalid, "tls: the certificate %s and the key %s cannot be used: %v", f.certFile, f.keyFile, err).
			WithHint("Give PEM files that belong together, the certificate with the chain behind it, readable for the server.")
	}
	if f.pair != nil {
		f.log.Info("the certificate is a new one", "names", strings.Join(names(pair.Leaf), " "), "until", pair.Leaf.NotAfter)
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		f.log.Warn("the certificate has expired", "file", f.certFile, "at", pair.Leaf.NotAfter)
	}
	f.pair, f.seen, f.looked = &pair, seen, time.Now()
	return nil
}

// current is called for every connection.
func (f *Files) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	stale := time.Since(f.looked) >= lookEvery
	changed := false
	if stale {
		f.looked = time.Now()
		seen := f.stamps()
		changed = seen != f.seen
		f.seen = seen
	}
	f.mu.Unlock()
	if changed {
		if err := f.Reload(); err != nil {
			f.log.Error("the certificate stays the old one", "error", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pair, nil
}

func (f *Files) stamps() (s [2]stamp) {
	for i, name := range []string{f.certFile, f.keyFile} {
		if info, err := os.Stat(name); err == nil {
			s[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return s
}

// Names implements Source.
func (f *Files) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return names(f.pair.Leaf)
}

// Close implements Source.
func (f *Files) Close() error { return nil }

func names(c *x509.Certificate) []string {
	return slices.DeleteFunc(slices.Clone(c.DNSNames), func(n string) bool { return strings.HasPrefix(n, "*") })
}
