package instance

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"github.com/bothy-dev/bothy/internal/random"
)

const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID returns a prefix and 16 random characters (80 bits). Ids are part of
// host names, so they are lower case without punctuation.
func NewID(prefix string) string {
	b := make([]byte, 16)
	rand.Read(b)
	for i := range b {
		b[i] = idAlphabet[b[i]%32]
	}
	return prefix + string(b)
}

func newKey() string { return random.Hex(32) }

// machineID is the sandbox's /etc/machine-id: the same after every resume, different in a copy.
func machineID(sandboxID string) string {
	sum := sha256.Sum256([]byte("bothy machine id " + sandboxID))
	return hex.EncodeToString(sum[:16])
}

func newEntropy() []byte {
	b := make([]byte, 64)
	rand.Read(b)
	return b
}
