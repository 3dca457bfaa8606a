package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// A signer is the releaser's key.
type signer ed25519.PrivateKey

// readKey reads a private key, as `openssl genpkey -algorithm ed25519` writes it.
func readKey(name string) (signer, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not a key in PEM", name)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is not an Ed25519 key: make one with openssl genpkey -algorithm ed25519", name)
	}
	return signer(private), nil
}

// public is the public key in PEM, with which an installed program checks the release's templates.
func (s signer) public() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(ed25519.PrivateKey(s).Public())
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

// payloadType is that of in-toto's statements.
const payloadType = "application/vnd.in-toto+json"

// An envelope is DSSE's: a payload with signatures.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

// authenticated is what is signed of a payload (DSSE, pre-authentication encoding).
func authenticated(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// seal signs a payload.
func (s signer) seal(payload []byte) envelope {
	private := ed25519.PrivateKey(s)
	public, _ := private.Public().(ed25519.PublicKey)
	id := sha256.Sum256(public)
	return envelope{
		PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString(payload),
		Signatures: []signature{{hex.EncodeToString(id[:]), base64.StdEncoding.EncodeToString(ed25519.Sign(private, authenticated(payload)))}},
	}
}

// provenance writes how the files were made, as SLSA's statement, and signs it.
func (r release) provenance(sums []sum, key signer) error {
	type object = map[string]any
	var subjects []object
	for _, s := range sums {
		subjects = append(subjects, object{"name": s.name, "digest": object{"sha256": s.sha256}})
	}
	statement, err := json.Marshal(object{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":          "https://github.com/bothy-dev/bothy/blob/main/packaging/release",
				"externalParameters": object{"version": r.version},
				"resolvedDependencies": []object{
					{"uri": "git+https://github.com/bothy-dev/bothy", "digest": object{"gitCommit": r.commit}},
					{"uri": "pkg:golang/toolchain@" + runtime.Version()},
				},
			},
			"runDetails": object{"builder": object{"id": "https://github.com/bothy-dev/bothy/blob/main/Makefile#release"}},
		},
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(key.seal(statement))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, fmt.Sprintf("bothy-%s.provenance.json", r.version)), append(text, '\n'), 0o644)
}
