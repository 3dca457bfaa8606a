package template

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/store"
)

// A built template travels as an OCI artifact: a manifest, with the image compressed by zstd as its only layer, and
// a DSSE envelope as its config. The payload of the envelope is what describes the template, with the digest of the
// image, so that a signature over it covers everything.
const (
	// travelFormat is the version of the payload.
	travelFormat   = 1
	travelPayload  = "application/vnd.bothy.template.v1+json"
	travelType     = "application/vnd.bothy.template"
	travelConfig   = "application/vnd.bothy.template.config.v1.dsse+json"
	travelImage    = "application/vnd.bothy.template.rootfs.v1.erofs+zstd"
	maxTravelItems = 4096
	// maxSignatures limits how many signatures are checked.
	maxSignatures = 16
)

// traveller is the payload.
type traveller struct {
	Format       int             `json:"format"`
	OS           string          `json:"os"`
	Architecture string          `json:"architecture"`
	Template     *store.Template `json:"template"`
}

// envelope is DSSE's: a payload with signatures.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid,omitempty"`
	Sig   []byte `json:"sig"`
}

// authenticated is what is signed (DSSE, pre-authentication encoding).
func (e *envelope) authenticated() []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
}

// seal describes a template for its travel, and signs that if there is a key.
func seal(t *store.Template, key ed25519.PrivateKey) ([]byte, error) {
	payload, err := json.Marshal(traveller{travelFormat, "linux", runtime.GOARCH, t})
	if err != nil {
		return nil, err
	}
	e := &envelope{PayloadType: travelPayload, Payload: payload, Signatures: []signature{}}
	if key != nil {
		public, _ := key.Public().(ed25519.PublicKey)
		e.Signatures = append(e.Signatures, signature{keyID(public), ed25519.Sign(key, e.authenticated())})
	}
	return json.Marshal(e)
}

func keyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])
}

// unseal checks the signature of an envelope, and then what it describes.
func unseal(ctx context.Context, from string, text []byte, o PullOptions) (*store.Template, error) {
	limits := bounded.JSONLimits{Bytes: maxConfig, Depth: 32, Values: maxTravelItems}
	e := &envelope{}
	if err := bounded.JSON(ctx, bytes.NewReader(text), e, limits); err != nil {
		return nil, noTemplate(from, err)
	}
	if !o.Unsigned {
		if err := e.verify(from, o.Keys); err != nil {
			return nil, err
		}
	}
	if e.PayloadType != travelPayload {
		return nil, noTemplate(from, fmt.Errorf("it describes a %q", e.PayloadType))
	}
	// Before the rest, which another format may write otherwise.
	var of struct {
		Format       int    `json:"format"`
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	}
	if err := bounded.JSON(ctx, bytes.NewReader(e.Payload), &of, limits); err != nil {
		return nil, noTemplate(from, err)
	}
	switch {
	case of.Format != travelFormat:
		return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "%s has format %d, and this version of Bothy reads format %d", from, of.Format, travelFormat).
			WithHint("Use the same version of Bothy here as where it was exported, or build the template on this host.")
	case of.OS != "linux" || of.Architecture != runtime.GOARCH:
		return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "%s is for %s/%s, but this host is linux/%s", from, bounded.Short(of.OS), bounded.Short(of.Architecture), runtime.GOARCH).
			WithHint("Pull a template that was exported on a host like this one.")
	}
	var all traveller
	if err := bounded.JSON(ctx, bytes.NewReader(e.Payload), &all, limits); err != nil {
		return nil, noTemplate(from, err)
	}
	t := all.Template
	if t == nil {
		return nil, noTemplate(from, errors.New("it describes no template"))
	}
	ref, err := bothy.ParseTemplateRef(t.Ref())
	switch {
	case err != nil || ref.Digest != "" || ref.Name == "":
		err = fmt.Errorf("%q is not the name of a template", bounded.Short(t.Name))
	case t.Version != bothy.ManifestVersion:
		err = fmt.Errorf("its manifest has version %d, but this version of Bothy supports version %d", t.Version, bothy.ManifestVersion)
	case !isDigest(t.Digest) || t.SizeBytes <= 0 || t.SizeBytes > maxImageBytes:
		err = fmt.Errorf("an image of %d bytes with the digest %q cannot be", t.SizeBytes, bounded.Short(t.Digest))
	case t.Cwd != "" && !filepath.IsAbs(t.Cwd):
		err = fmt.Errorf("%q is not a folder to start in", bounded.Short(t.Cwd))
	case t.Memory != nil || t.Start != nil || t.Project != "":
		err = errors.New("it describes processes or an owner, which do not travel")
	}
	if err != nil {
		return nil, noTemplate(from, err)
	}
	if o.Digest != "" && o.Digest != t.Digest {
		return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "%s holds the template %s with the digest %s, not %s", from, t.Ref(), t.Digest, o.Digest).
			WithHint("Get it again from where that digest was announced.")
	}
	t.Name, t.Tag = ref.Name, tagOf(tagLink(ref.Tag))
	return t, nil
}

// verify refuses an envelope that none of the keys has signed.
func (e *envelope) verify(from string, keys []ed25519.PublicKey) error {
	if len(keys) == 0 {
		return bothy.Errorf(bothy.CodeInvalid, "there is no key to check the signature of %s with", from).
			WithHint("Give the public key of who made it with --key FILE, or --unsigned to trust it unchecked.")
	}
	if len(e.Signatures) == 0 {
		return bothy.Errorf(bothy.CodeTemplateInvalid, "%s is not signed", from).
			WithHint("Ask for one that was exported with --sign, or give --unsigned to trust it unchecked.")
	}
	signed := e.authenticated()
	for _, s := range e.Signatures[:min(len(e.Signatures), maxSignatures)] {
		for _, k := range keys {
			if ed25519.Verify(k, signed, s.Sig) {
				return nil
			}
		}
	}
	return bothy.Errorf(bothy.CodeTemplateInvalid, "%s is not signed by the key that was given, or was altered", from).
		WithHint("Give the public key of who made it with --key FILE, and get it again from there.")
}

func noTemplate(from string, why error) error {
	return bothy.Errorf(bothy.CodeTemplateInvalid, "%s is not an exported template: %v", from, why).
		WithHint("`bothy template export` makes one. A container image becomes a template with `bothy template import`.")
}

// maxKeyFile limits files with keys.
const maxKeyFile = 64 << 10

// ReadPublicKeys reads Ed25519 keys in PEM, as `openssl pkey -pubout` writes them.
func ReadPublicKeys(file string) ([]ed25519.PublicKey, error) {
	rest, err := readKeyFile(file)
	if err != nil {
		return nil, err
	}
	var keys []ed25519.PublicKey
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		public, ok := key.(ed25519.PublicKey)
		if err != nil || !ok {
			return nil, noKey(file, "a public Ed25519 key", "openssl pkey -in PRIVATE -pubout -out FILE")
		}
		keys = append(keys, public)
	}
	if len(keys) == 0 {
		return nil, noKey(file, "a public Ed25519 key", "openssl pkey -in PRIVATE -pubout -out FILE")
	}
	return keys, nil
}

// ReadPrivateKey reads an Ed25519 key in PEM, as `openssl genpkey -algorithm ed25519` writes it.
func ReadPrivateKey(file string) (ed25519.PrivateKey, error) {
	text, err := readKeyFile(file)
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(text); block != nil {
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if private, ok := key.(ed25519.PrivateKey); ok && err == nil {
			return private, nil
		}
	}
	return nil, noKey(file, "a private Ed25519 key", "openssl genpkey -algorithm ed25519 -out FILE")
}

func readKeyFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the key cannot be read: %v", err).WithHint("Give a file in PEM.")
	}
	defer f.Close()
	return bounded.ReadAll(context.Background(), f, maxKeyFile)
}

func noKey(file, what, how string) error {
	return bothy.Errorf(bothy.CodeInvalid, "%s is not %s in PEM", file, what).WithHint("Make one: %s", how)
}
