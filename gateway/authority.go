package gateway

import (
	"container/list"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// authorityLife is long, because a sandbox may be paused for long.
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 7 * 24 * time.Hour
	// clockSkew is how far back certificates are valid, for a sandbox whose
	// clock is behind.
	clockSkew = 48 * time.Hour
	maxLeaves = 256
)

// certificateAuthority is trusted inside one sandbox only. It issues certificates for the
// gateway when that impersonates a host that receives a secret. Its key is kept only in memory.
type certificateAuthority struct {
	clock bothy.Clock
	key   *ecdsa.PrivateKey
	cert  *x509.Certificate
	pem   []byte

	// One key serves all hosts: generating one costs more than signing, and both ends use it.
	leafKey *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*list.Element
	used   list.List
}

type leaf struct {
	name string
	cert *tls.Certificate
	// renew is when the certificate becomes too old to be used.
	renew time.Time
}

// newCertificateAuthority makes the authority whose key is derived from seed.
func newCertificateAuthority(seed []byte, clock bothy.Clock) (*certificateAuthority, error) {
	key, err := deriveKey(seed)
	if err != nil {
		return nil, err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := clock.Now()
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Bothy sandbox"},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &certificateAuthority{
		clock: clock, key: key, cert: cert, leafKey: leafKey, leaves: map[string]*list.Element{},
		pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

// deriveKey returns the same key for the same seed.
func deriveKey(seed []byte) (*ecdsa.PrivateKey, error) {
	for i := range 16 {
		raw, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprintf("certificate authority %d", i), 32)
		if err != nil {
			return nil, err
		}
		// Almost any 32 bytes are a valid key; the rest are too large.
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw); err == nil {
			return key, nil
		}
	}
	return nil, errors.New("no key follows from the seed")
}

func serial() *big.Int {
	n, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return n.Add(n, big.NewInt(1))
}

// certificate returns a certificate for name, cached while it is fresh.
func (a *certificateAuthority) certificate(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if e := a.leaves[name]; e != nil {
		if l := e.Value.(*leaf); now.Before(l.renew) {
			a.used.MoveToFront(e)
			return l.cert, nil
		}
		a.forget(e)
	}
	cert, err := a.issue(name, now)
	if err != nil {
		return nil, err
	}
	if a.used.Len() >= maxLeaves {
		a.forget(a.used.Back())
	}
	a.leaves[name] = a.used.PushFront(&leaf{name: name, cert: cert, renew: now.Add(leafLife / 2)})
	return cert, nil
}

func (a *certificateAuthority) forget(e *list.Element) {
	delete(a.leaves, a.used.Remove(e).(*leaf).name)
}

func (a *certificateAuthority) issue(name string, now time.Time) (*tls.Certificate, error) {
	tmpl := &x509.Certificate{
		SerialNumber: serial(), DNSNames: []string{name},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	// The subject contains the name if it fits; clients read DNSNames.
	if len(name) <= 64 {
		tmpl.Subject.CommonName = name
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &a.leafKey.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: a.leafKey}, nil
}
