//go:build linux && !clientonly

package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/test/cli/pretend"
)

// A host's own drain hook calls the server by address, although its certificate is for a name, and trusts
// only the certificate in the server's file.
func TestAServerIsCalledWithItsOwnCertificate(t *testing.T) {
	its, other := newCertificate(t), newCertificate(t)
	world := httptest.NewUnstartedServer(newWorld(t).Handler())
	world.TLS = &tls.Config{Certificates: []tls.Certificate{its}}
	world.StartTLS()
	defer world.Close()
	elsewhere := client.Credentials{URL: "https://api.example.org", APIKey: pretend.Key}
	stored(t, elsewhere)
	home := t.TempDir()
	t.Setenv("BOTHY_HOME", home)
	writeAdmin(t, elsewhere)
	a := newApp(os.Stdin, io.Discard, io.Discard)
	if s, err := a.connectToSelf(); s != nil || err != nil {
		t.Errorf("without a server: %v, %v", s, err)
	}
	server, err := describeServer(os.Getpid(), strings.TrimPrefix(world.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	server.Certificate = filepath.Join(home, "tls.crt")
	if err := server.saveTo(serverFilePath()); err != nil {
		t.Fatal(err)
	}
	hosts := func(der []byte) error {
		t.Helper()
		if err := os.WriteFile(server.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := a.connectToSelf()
		if err != nil {
			return err
		}
		_, err = s.hosts.Hosts(t.Context())
		return err
	}
	if err := hosts(its.Certificate[0]); err != nil {
		t.Error(err)
	}
	if err := hosts(other.Certificate[0]); err == nil {
		t.Error("a certificate that is not in the file was trusted")
	}
	if err := hosts([]byte("none")); err == nil {
		t.Error("a file without a certificate was taken")
	}
	// A certificate from ACME is not in a file, so the name is verified.
	authority := server.Certificate
	t.Setenv(client.CAFileEnv, authority)
	if server.Certificate = ""; server.saveTo(serverFilePath()) != nil {
		t.Fatal("the server's file cannot be written")
	}
	byName := func(der []byte, name string) error {
		t.Helper()
		writeAdmin(t, client.Credentials{URL: "https://" + name, APIKey: pretend.Key})
		server.Certificate = authority
		defer func() { server.Certificate = "" }()
		return hosts(der)
	}
	if err := byName(its.Certificate[0], "api.example.org"); err != nil {
		t.Error(err)
	}
	if err := byName(other.Certificate[0], "api.example.org"); err == nil {
		t.Error("a certificate of another authority was trusted")
	}
	if err := byName(its.Certificate[0], "api.example.net"); err == nil {
		t.Error("a certificate for another name was trusted")
	}
}

// newCertificate makes a certificate as an authority would, with names that resolve elsewhere.
func newCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	authority, own := key(), key()
	now := time.Now()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		DNSNames: []string{"*.example.org"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &own.PublicKey, authority)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own}
}
