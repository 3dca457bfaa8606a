package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Hosts authenticate each other with certificates of their own authority. Its key is in the
// database, sealed with secrets.key, which every host has, so each host issues its own
// certificate.

const (
	sealedAs = "the hosts' authority"
	// certLife is how long a host's certificate is valid; it is renewed after half of that.
	certLife = 7 * 24 * time.Hour
	// clockSkew is how much hosts' clocks may differ.
	clockSkew     = 24 * time.Hour
	authorityLife = 50 * 365 * 24 * time.Hour
)

// Vault seals what is stored in the database.
type Vault interface {
	Seal(plain []byte, bound string) ([]byte, error)
	Open(sealed []byte, bound string) ([]byte, error)
}

// Authority issues this host's certificates and verifies those of other hosts.
type Authority struct {
	self string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool

	mu  sync.Mutex
	own *tls.Certificate
}

// OpenAuthority opens the cluster's authority, or creates it.
func OpenAuthority(ctx context.Context, hosts store.Hosts, v Vault) (*Authority, error) {
	text, sealed, err := hosts.Authority(ctx, func() (string, []byte, error) { return newAuthority(v) })
	if err != nil {
		return nil, err
	}
	der, err := v.Open(sealed, sealedAs)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeConflict, "this host has not joined the cluster: its secrets.key differs from that of the other hosts").
			WithHint("Run the command that `bothy host add` prints on one of them here, with an empty BOTHY_HOME. See docs/cluster.md.").Because(err)
	}
	key, err := x509.ParseECPrivateKey(der)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the certificate of the hosts' authority in the database is not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	a := &Authority{self: hosts.Self(), cert: cert, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a, nil
}

func newAuthority(v Vault) (certificate string, sealed []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Bothy hosts"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		NotBefore: time.Now().Add(-clockSkew), NotAfter: time.Now().Add(authorityLife), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	cert, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return "", nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", nil, err
	}
	sealed, err = v.Seal(der, sealedAs)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})), sealed, err
}

func serial() *big.Int {
	n, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	return n
}

// certName is the DNS name in a host's certificate.
func certName(host string) string { return host + ".hosts.bothy.internal" }

// certificate returns this host's certificate, renewing it if needed.
func (a *Authority) certificate() (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own != nil && time.Until(a.own.Leaf.NotAfter) > certLife/2 {
		return a.own, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: a.self}, DNSNames: []string{certName(a.self)},
		NotBefore: time.Now().Add(-clockSkew), NotAfter: time.Now().Add(certLife + clockSkew), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a.own = &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}
	return a.own, nil
}

// Server returns the TLS settings for listening to other hosts. A host that joins has no
// certificate yet; the handler decides what it may do without one.
func (a *Authority) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: a.pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.certificate() },
	}
}

// client returns the TLS settings for connecting to another host.
func (a *Authority) client(host string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: a.pool, ServerName: certName(host),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return a.certificate() },
	}
}

func (a *Authority) fingerprint() string { return fingerprint(a.cert) }

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// peerName returns the host on the other end of a connection, or "".
func peerName(s *tls.ConnectionState) string {
	if s == nil || len(s.VerifiedChains) == 0 {
		return ""
	}
	return s.VerifiedChains[0][0].Subject.CommonName
}

// tokenPrefix begins a join token.
const tokenPrefix = "bothyhost_"

// joinToken is what a new host must know: the address to ask, the fingerprint of the authority,
// and the secret.
type joinToken struct {
	Address     string `json:"a"`
	Fingerprint string `json:"f"`
	Secret      string `json:"s"`
}

func (t joinToken) String() string {
	b, _ := json.Marshal(t) // strings cannot fail
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

func parseToken(text string) (t joinToken, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if !ok || err != nil || json.Unmarshal(b, &t) != nil || t.Address == "" || t.Secret == "" {
		return t, bothy.Errorf(bothy.CodeInvalid, "this is not a valid join token").WithHint("Copy the whole token that `bothy host add` prints.")
	}
	return t, nil
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// pinned returns TLS settings that accept any host of the token's authority.
func (t joinToken) pinned() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The authority is known only by its fingerprint; VerifyConnection checks the chain.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			pool := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				if fingerprint(c) == t.Fingerprint {
					pool.AddCert(c)
				}
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			if err != nil {
				return fmt.Errorf("the server is not a host of the token's cluster: %w", err)
			}
			return nil
		},
	}
}
