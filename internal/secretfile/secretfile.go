// Package secretfile writes files that only their owner may read.
package secretfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces a file, whole or not at all, also if the host loses its power, and makes
// the folder above it.
func Write(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
