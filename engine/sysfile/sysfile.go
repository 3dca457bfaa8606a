// Package sysfile reads and writes the small files that the host's kernel provides, such as
// those of cgroups and processes. Package os does so too, but first checks whether each file can
// be polled, which costs five more system calls.
package sysfile

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// Write writes a text in one call. Errors are *fs.PathError.
func Write(path, text string) error {
	fd, err := open(path, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := again(func() (int, error) { return unix.Write(fd, []byte(text)) }); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// Read returns the whole text. Errors are *fs.PathError.
func Read(path string) (string, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 1024)
	for {
		n, err := again(func() (int, error) { return unix.Read(fd, text[len(text):cap(text)]) })
		if err != nil {
			return "", &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return string(text), nil
		}
		if text = text[:len(text)+n]; len(text) == cap(text) {
			text = append(text, 0)[:len(text)]
		}
	}
}

func open(path string, flags int) (int, error) {
	fd, err := again(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// again calls f until it was not interrupted.
func again(f func() (int, error)) (int, error) {
	for {
		if n, err := f(); err != unix.EINTR {
			return n, err
		}
	}
}
