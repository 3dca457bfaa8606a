package gateway

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/textproto"

	"github.com/bothy-dev/bothy"
	"golang.org/x/net/http/httpguts"
)

// secrets are the credentials of one sandbox and what is needed to insert them. It is immutable;
// a gateway replaces it as a whole.
type secrets struct {
	list []*secret
	// seed is what placeholders and the certificate authority are derived from.
	seed []byte
	ca   *certificateAuthority
}

// secret is one credential, with its placeholder.
type secret struct {
	name        string
	value       string
	header      string
	override    bool
	placeholder string
	hosts       domains
	// forms are the forms in which the value may come back, with their replacements.
	forms []replacement
}

// CheckSecrets refuses the credentials that SetSecrets would.
func CheckSecrets(list []bothy.Secret) error {
	_, err := compileSecrets(list, []byte("none"))
	return err
}

// SetSecrets replaces the credentials that are inserted into requests to their hosts. Values go
// nowhere else: not into the sandbox, a log or an error. Placeholders and the certificate
// authority are derived from seed, or, if it is empty, from Options.SecretSeed: a copy of a
// sandbox with the same seed can continue to use what it has in memory.
func (g *Gateway) SetSecrets(list []bothy.Secret, seed []byte) error {
	s := &secrets{seed: seed}
	if len(seed) == 0 {
		s.seed = g.seed
	}
	var err error
	if s.list, err = compileSecrets(list, s.seed); err != nil {
		return err
	}
	if len(s.list) > 0 {
		if s.ca, err = g.authority(s.seed); err != nil {
			return (&bothy.Error{Op: "gateway.secrets", Code: bothy.CodeInternal, Detail: "the sandbox's certificate authority could not be made"}).Because(err)
		}
	}
	g.secrets.Store(s)
	return nil
}

func compileSecrets(list []bothy.Secret, seed []byte) ([]*secret, error) {
	var all []*secret
	seen := map[string]bool{}
	for _, one := range list {
		if seen[one.Name] {
			return nil, bothy.Errorf(bothy.CodeInvalid, "there are two secrets with the name %q", one.Name).
				WithHint("Give each a name of its own.")
		}
		seen[one.Name] = true
		c, err := newSecret(one, seed)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func newSecret(b bothy.Secret, seed []byte) (*secret, error) {
	if !isSecretName(b.Name) {
		return nil, bothy.Errorf(bothy.CodeInvalid, "%q is not a name for a secret", clip(b.Name)).
			WithHint("Use up to 64 letters, digits, underscores and dashes.")
	}
	if b.Value == "" || !httpguts.ValidHeaderFieldValue(b.Value) {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the value of the secret %q is empty or not allowed in a header", b.Name).
			WithHint("Give the value without a line break at its end.")
	}
	if b.Header != "" && !isToken(b.Header) {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the secret %q has the header %q, which is not a header name", b.Name, clip(b.Header)).
			WithHint("Write it as in X-Api-Key, without a colon.")
	}
	if framing[textproto.CanonicalMIMEHeaderKey(b.Header)] {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the secret %q has the header %s, which says how a request is sent", b.Name, b.Header).
			WithHint("Name the header that carries it, such as Authorization.")
	}
	if b.Override && b.Header == "" {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the secret %q overrides a header and names none", b.Name).
			WithHint("Give its header, or leave override out.")
	}
	if len(b.Hosts) == 0 {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the secret %q has no hosts", b.Name).
			WithHint("List the hosts that may receive it, as in api.example.com.")
	}
	s := &secret{name: b.Name, value: b.Value, header: textproto.CanonicalMIMEHeaderKey(b.Header), override: b.Override}
	for _, h := range b.Hosts {
		if err := s.hosts.add(h, "secret:"+b.Name); err != nil {
			return nil, err
		}
	}
	tag, err := hkdf.Key(sha256.New, seed, nil, "placeholder "+b.Name, 16)
	if err != nil {
		return nil, err
	}
	s.placeholder = "bothy-secret-" + b.Name + "-" + hex.EncodeToString(tag)
	if !b.AllowEcho {
		s.forms = formsOf(s.value, s.placeholder)
	}
	return s, nil
}

// framing are the headers that belong to a connection or to the length of a body.
var framing = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Keep-Alive": true, "Proxy-Connection": true,
	"Te": true, "Trailer": true, "Upgrade": true,
}

func isSecretName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// authority returns the certificate authority of a seed, made when first needed.
func (g *Gateway) authority(seed []byte) (*certificateAuthority, error) {
	if s := g.secrets.Load(); s.ca != nil && bytes.Equal(s.seed, seed) {
		return s.ca, nil
	}
	return newCertificateAuthority(seed, g.clock)
}

// CAPEM returns the certificate that the sandbox must trust for its secrets to be inserted, or
// nil if it has none.
func (g *Gateway) CAPEM() []byte {
	if s := g.secrets.Load(); s.ca != nil {
		return s.ca.pem
	}
	return nil
}

// Placeholders returns what the sandbox uses in requests instead of each secret.
func (g *Gateway) Placeholders() map[string]string {
	m := map[string]string{}
	for _, s := range g.secrets.Load().list {
		if !s.override {
			m[s.name] = s.placeholder
		}
	}
	return m
}

// secretHost reports whether connections to name carry a secret, and so must be tied to the name
// in every mode.
func (g *Gateway) secretHost(name string) bool {
	for _, s := range g.secrets.Load().list {
		if _, ok := s.hosts.match(name); ok {
			return true
		}
	}
	return false
}

// newSeed returns o's seed or a random one.
func newSeed(seed []byte) []byte {
	if len(seed) > 0 {
		return seed
	}
	seed = make([]byte, 32)
	_, _ = rand.Read(seed)
	return seed
}
