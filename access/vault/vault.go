// Package vault encrypts secrets in the store, with a key in a separate file.
// server opens it; lifecycle uses it.
package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/bothy-dev/bothy/internal/wholefile"
)

const keySize = 32

// Vault encrypts with AES-256-GCM.
type Vault struct {
	key  []byte
	aead cipher.AEAD
}

// Open reads the key file at path, and creates it if it is missing.
func Open(path string) (*Vault, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = create(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open the key of the secrets: %w", err)
	}
	if len(key) != keySize {
		return nil, fmt.Errorf("the key of the secrets, %s, has %d bytes instead of %d; restore it from a backup", path, len(key), keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &Vault{key: key, aead: aead}, err
}

// create makes a key. Two servers that do so at once agree on one key.
func create(path string) ([]byte, error) {
	key := make([]byte, keySize)
	rand.Read(key)
	if err := wholefile.Create(path, key, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path)
}

// Seal encrypts plain. Open needs the same bound.
func (v *Vault) Seal(plain []byte, bound string) ([]byte, error) {
	nonce := make([]byte, v.aead.NonceSize())
	rand.Read(nonce)
	return v.aead.Seal(nonce, nonce, plain, []byte(bound)), nil
}

// Open decrypts the output of Seal.
func (v *Vault) Open(sealed []byte, bound string) ([]byte, error) {
	n := v.aead.NonceSize()
	if len(sealed) < n {
		return nil, errors.New("sealed text is too short")
	}
	plain, err := v.aead.Open(nil, sealed[:n], sealed[n:], []byte(bound))
	if err != nil {
		return nil, errors.New("sealed text was changed, moved, or sealed with another key")
	}
	return plain, nil
}

// Derive returns 32 bytes that are always the same for a purpose and do not
// reveal the key.
func (v *Vault) Derive(purpose string) []byte {
	b, err := hkdf.Key(sha256.New, v.key, nil, purpose, 32)
	if err != nil {
		panic(err) // only for lengths that are too large
	}
	return b
}
