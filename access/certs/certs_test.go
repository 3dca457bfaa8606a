package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	stdlog "log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/certs"
	"github.com/bothy-dev/bothy/internal/freeport"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// authority is a private CA.
type authority struct {
	*testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{T: t, dir: t.TempDir()}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	text := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, text, text, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	return a
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue writes a certificate and key for a name, and returns the serial number.
func (a *authority) issue(name string) *big.Int {
	a.Helper()
	a.n++
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	serial := big.NewInt(1000 + a.n)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, a.cert, key.Public(), a.key)
	if err != nil {
		a.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	a.write("cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	return serial
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name string, b []byte) {
	a.Helper()
	if err := os.WriteFile(a.file(name), b, 0o600); err != nil {
		a.Fatal(err)
	}
}

// listen answers over TLS, and returns the address.
func listen(t *testing.T, s certs.Source) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", s.Config())
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }),
		ErrorLog: stdlog.New(io.Discard, "", 0),
	}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close(); s.Close() })
	return l.Addr().String()
}

// shown returns the certificate that a server presents to a client that trusts roots.
func shown(addr, name string, roots *x509.CertPool) (*x509.Certificate, error) {
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", addr, &tls.Config{ServerName: name, RootCAs: roots})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0], nil
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to pass that %s", what)
		}
	}
}

func TestFilesAreReadAgain(t *testing.T) {
	a := newAuthority(t)
	first := a.issue("bothy.example.org")
	s, err := certs.OpenFiles(a.file("cert.pem"), a.file("key.pem"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Names(); len(n) != 1 || n[0] != "bothy.example.org" {
		t.Errorf("its names are %v", n)
	}
	addr := listen(t, s)
	is := func(want *big.Int) bool {
		c, err := shown(addr, "bothy.example.org", a.pool())
		if err != nil {
			t.Fatal(err)
		}
		return c.SerialNumber.Cmp(want) == 0
	}
	if !is(first) {
		t.Error("another certificate is shown")
	}
	if _, err := shown(addr, "bothy.example.org", x509.NewCertPool()); err == nil {
		t.Error("a client that does not know the authority trusts it")
	}
	// It is reloaded automatically after a change.
	second := a.issue("bothy.example.org")
	until(t, "the second certificate is shown", func() bool { return is(second) })
	// A broken file changes nothing, and is an error of an explicit reload.
	a.write("cert.pem", []byte("half"))
	if err := s.Reload(); bothy.ErrorCode(err) != bothy.CodeInvalid || bothy.AsError(err).Hint == "" {
		t.Errorf("a broken certificate: %v", err)
	}
	if !is(second) {
		t.Error("a broken certificate took the place of a good one")
	}
	// It is reloaded at once on request.
	third := a.issue("bothy.example.org")
	if err := s.Reload(); err != nil {
		t.Error(err)
	}
	if !is(third) {
		t.Error("a certificate is not shown although it was said to be new")
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	a := newAuthority(t)
	a.issue("a.example.org")
	for _, pair := range [][2]string{{"none.pem", "key.pem"}, {"cert.pem", "none.pem"}, {"key.pem", "cert.pem"}} {
		if _, err := certs.OpenFiles(a.file(pair[0]), a.file(pair[1]), quiet); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%v: %v", pair, err)
		}
	}
	if _, err := certs.OpenACME(certs.ACMEOptions{Domains: []string{"a.example.org"}, CAFile: a.file("none.pem"), Dir: t.TempDir(), Log: quiet}); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("an authority whose certificate is missing: %v", err)
	}
}

// pebble is an ACME authority on the loopback interface, for which every name resolves to loopback.
func pebble(t *testing.T, httpPort, tlsPort int) (directory, caFile string, roots func() *x509.CertPool) {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	resolver, err := net.Listen("tcp", "127.0.0.1:0") // it asks by TCP
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	names := &dns.Server{Listener: resolver, NotifyStartedFunc: func() { close(ready) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1),
			})
		}
		_ = w.WriteMsg(m)
	})}
	go names.ActivateAndServe()
	<-ready
	t.Cleanup(func() { names.Shutdown() })
	log := stdlog.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	issuer := ca.New(log, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "default"}})
	validator := va.New(log, httpPort, tlsPort, false, resolver.Addr().String(), store)
	front := wfe.New(log, store, validator, issuer, []string{"authority.example.org"}, false, false, 1, 1)
	srv := httptest.NewTLSServer(front.Handler())
	t.Cleanup(srv.Close)
	caFile = filepath.Join(t.TempDir(), "acme.pem")
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return srv.URL + wfe.DirectoryPath, caFile, func() *x509.CertPool {
		p := x509.NewCertPool()
		p.AddCert(issuer.GetRootCert(0).Cert)
		return p
	}
}

// A server without a certificate gets one from the authority with either challenge, and still has it
// after a restart.
func TestACME(t *testing.T) {
	for name, http := range map[string]bool{"http-01": true, "tls-alpn-01": false} {
		t.Run(name, func(t *testing.T) {
			_, text, _ := net.SplitHostPort(freeport.ForTest(t))
			port, _ := strconv.Atoi(text)
			o := certs.ACMEOptions{Domains: []string{"bothy.example.org"}, Email: "me@example.org", Dir: t.TempDir(), Log: quiet}
			if http {
				o.HTTPPort = port
			} else {
				o.TLSPort = port
			}
			var roots func() *x509.CertPool
			o.DirectoryURL, o.CAFile, roots = pebble(t, port, port)
			s, err := certs.OpenACME(o)
			if err != nil {
				t.Fatal(err)
			}
			addr := listen(t, s)
			var got *x509.Certificate
			until(t, "there is a certificate", func() bool {
				got, err = shown(addr, "bothy.example.org", roots())
				return err == nil
			})
			if len(got.DNSNames) != 1 || got.DNSNames[0] != "bothy.example.org" {
				t.Errorf("it is for %v", got.DNSNames)
			}
			if _, err := shown(addr, "other.example.org", roots()); err == nil {
				t.Error("there is a certificate for another name")
			}
			s.Close()
			again, err := certs.OpenACME(o)
			if err != nil {
				t.Fatal(err)
			}
			kept, err := shown(listen(t, again), "bothy.example.org", roots())
			if err != nil || kept.SerialNumber.Cmp(got.SerialNumber) != 0 {
				t.Errorf("after a restart: %v", err)
			}
		})
	}
}
