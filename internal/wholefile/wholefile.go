// Package wholefile writes files that others find complete or not at all, even after a loss of
// power.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Draft begins the names of unfinished files. A writer that was killed leaves one in the folder
// of its file.
const Draft = ".new-"

// Write makes a file, or replaces an existing one.
func Write(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, os.Rename)
}

// Create makes a file. An existing one is kept, and the error is fs.ErrExist: of several
// concurrent writers, one wins.
func Create(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, os.Link)
}

func write(path string, data []byte, mode fs.FileMode, put func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), Draft)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := put(f.Name(), path); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Sync makes the content of a file, or the names in a folder, survive a loss of power.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
