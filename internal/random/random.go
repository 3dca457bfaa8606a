// Package random makes unguessable strings.
package random

import (
	"crypto/rand"
	"encoding/hex"
)

// Hex returns n random bytes in hexadecimal digits.
func Hex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
