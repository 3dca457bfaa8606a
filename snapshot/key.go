package snapshot

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
)

// keyPrefix begins the text of a public key.
const keyPrefix = "bothy-key-"

// signed binds a signature to its purpose, so that it is invalid elsewhere.
var signed = &ed25519.Options{Context: "bothy snapshot archive manifest"}

// Key signs the archives that a server exports. Its zero value signs nothing.
type Key struct{ private ed25519.PrivateKey }

// NewKey derives the key from a secret of 32 bytes.
func NewKey(seed []byte) Key { return Key{ed25519.NewKeyFromSeed(seed)} }

// Public returns the key to verify signatures with.
func (k Key) Public() PublicKey {
	if k.private == nil {
		return ""
	}
	return publicKey(k.private.Public().(ed25519.PublicKey))
}

// sign returns the PAX records with the signature of a manifest. They are in its tar header,
// where other readers ignore them.
func (k Key) sign(manifest []byte) (map[string]string, error) {
	if k.private == nil {
		return nil, nil
	}
	sig, err := k.private.Sign(nil, manifest, signed)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		keyRecord: string(k.Public()), signatureRecord: base64.RawURLEncoding.EncodeToString(sig),
	}, nil
}

const (
	keyRecord       = "BOTHY.key"
	signatureRecord = "BOTHY.signature"
)

// PublicKey is the text of an Ed25519 public key, such as bothy-key-Xk3….
type PublicKey string

func publicKey(k ed25519.PublicKey) PublicKey {
	return PublicKey(keyPrefix + base64.RawURLEncoding.EncodeToString(k))
}

// ParsePublicKey validates the text of a key.
func ParsePublicKey(text string) (PublicKey, error) {
	k, err := decodeKey(text)
	if err != nil {
		return "", bothy.Errorf(bothy.CodeInvalid, "%q is not the key of a server", text).
			WithHint("Give what `bothy snapshot key` prints on the server that exports: %s and 43 characters.", keyPrefix).Because(err)
	}
	return publicKey(k), nil
}

func decodeKey(text string) (ed25519.PublicKey, error) {
	encoded, ok := strings.CutPrefix(text, keyPrefix)
	if !ok {
		return nil, errors.New("it does not start with " + keyPrefix)
	}
	k, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err == nil && len(k) != ed25519.PublicKeySize {
		err = errors.New("it has the wrong length")
	}
	return k, err
}

// signer returns the key that signed a manifest, or "" if it is not signed. An invalid
// signature is an error: the manifest was changed.
func signer(manifest []byte, records map[string]string) (PublicKey, error) {
	by, sig := records[keyRecord], records[signatureRecord]
	if by == "" && sig == "" {
		return "", nil
	}
	k, err := decodeKey(by)
	if err != nil {
		return "", damaged("its signature has no valid key").Because(err)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(sig)
	if err == nil {
		err = ed25519.VerifyWithOptions(k, manifest, b, signed)
	}
	if err != nil {
		return "", damaged("its signature does not match its manifest").
			WithHint("It was changed after it was exported. Export it again, and copy it whole.").Because(err)
	}
	return publicKey(k), nil
}

// untrusted says why an archive's memory is dropped, or returns "" if it is trusted.
func untrusted(by PublicKey, trusted []PublicKey) string {
	const after = "its files were imported, and its memory and processes were left out. "
	switch {
	case by == "":
		return "the archive is not signed: " + after + "Export it again with a server that signs archives."
	case !slices.Contains(trusted, by):
		return "the archive is signed by " + string(by) + ", which this server does not trust: " + after +
			"The operator can add that key to snapshots.trusted_keys; then import the archive again."
	}
	return ""
}
