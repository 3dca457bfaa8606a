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

// Hosts know each other by certificates of an authority of their own. Its key lies in the
// database, sealed with the key of the secrets, which every host has: so each makes a
// certificate for itself.

const (
	sealedAs = "the hosts' authority"
	// certLife is how long a host's certificate is good; it is renewed at half of that.
	certLife = 7 * 24 * time.Hour
	// clockSkew is by how much hosts' clocks may differ.
	clockSkew     = 24 * time.Hour
	authorityLife = 50 * 365 * 24 * time.Hour
)

// Vault seals what lies in the database.
type Vault interface {
	Seal(plain []byte, bound string) ([]byte, error)
	Open(sealed []byte, bound string) ([]byte, error)
}

// Authority makes the certificates of this host, and checks those of others.
type Authority struct {
	self string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool

	mu  sync.Mutex
	own *tls.Certificate
}

// OpenAuthority opens the authority of the hosts, or makes it.
func OpenAuthority(ctx context.Context, hosts store.Hosts, v Vault) (*Authority, error) {
	text, sealed, err := hosts.Authority(ctx, func() (string, []byte, error) { return newAuthority(v) })
	if err != nil {
		return nil, err
	}
	der, err := v.Open(sealed, sealedAs)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeConflict, "this host has not joined the cluster: its secrets.key is not that of the other hosts").
			WithHint("Give it an empty BOTHY_HOME with the secrets.key of one of them. docs/cluster.md says how a host joins.").Because(err)
	}
	key, err := x509.ParseECPrivateKey(der)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the certificate of the hosts' authority cannot be read")
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

// certName is the name of a host in its certificate.
func certName(host string) string { return host + ".hosts.bothy.internal" }

// certificate is this host's own.
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

// Server is how this host listens to others. Who joins has no certificate yet; what it may do
// without one is for the handler to say.
func (a *Authority) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: a.pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.certificate() },
	}
}

// client is how this host speaks to another.
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

// peerName is the host on the other end of a connection, or empty.
func peerName(s *tls.ConnectionState) string {
	if s == nil || len(s.VerifiedChains) == 0 {
		return ""
	}
	return s.VerifiedChains[0][0].Subject.CommonName
}

// tokenPrefix begins what a new host joins with.
const tokenPrefix = "bothyhost_"

// joinToken is what a new host must know: whom to ask, by what to know it, and the secret.
type joinToken struct {
	Address     string `json:"a"`
	Fingerprint string `json:"f"`
	Secret      string `json:"s"`
}

func (t joinToken) String() string {
	b, _ := json.Marshal(t) // of words
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

func parseToken(text string) (t joinToken, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if !ok || err != nil || json.Unmarshal(b, &t) != nil || t.Address == "" || t.Secret == "" {
		return t, bothy.Errorf(bothy.CodeInvalid, "this is no token for a new host").WithHint("Take the one that `bothy host add` prints, whole.")
	}
	return t, nil
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// pinned is a connection to the host of a token: any host of that authority will do.
func (t joinToken) pinned() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The authority is known by its fingerprint and by nothing else; the chain is checked below.
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
				return fmt.Errorf("it is not a host of that cluster: %w", err)
			}
			return nil
		},
	}
}
