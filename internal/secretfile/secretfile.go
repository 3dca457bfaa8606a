// Package secretfile writes files that only their owner may read.
package secretfile

import (
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy/internal/wholefile"
)

// Write replaces a file, whole or not at all, also if the host loses its power, and makes
// the folder above it.
func Write(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return wholefile.Write(path, b, 0o600)
}
