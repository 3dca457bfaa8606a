// Package secretfile writes files that only their owner may read.
package secretfile

import (
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy/internal/wholefile"
)

// Write replaces a file, completely or not at all, even after a loss of power, and makes its
// folder.
func Write(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return wholefile.Write(path, b, 0o600)
}
