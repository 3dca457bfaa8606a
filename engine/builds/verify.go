package builds

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// verify checks that each of a build's files can be written only by the server's user, and has
// the right SHA-256. A file that was right is not read again while the server runs and its dates
// are the same: only its owner could change it without a trace.
func (s *Store) verify(b *Build) error {
	for _, dir := range []string{s.dir, filepath.Join(s.dir, recordsDir)} {
		info, err := os.Stat(dir)
		if err == nil {
			err = ownAlone(info)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if len(b.Files) == 0 {
		return errors.New("it has no files")
	}
	for _, f := range b.Files {
		if err := s.verifyFile(f); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	// A tree consists of links to files that were just verified, and can be
	// recreated.
	return s.makeTree(b)
}

func (s *Store) verifyFile(f File) error {
	fd, err := os.OpenFile(filepath.Join(s.dir, f.Name), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer fd.Close()
	info, err := fd.Stat()
	if err != nil {
		return err
	}
	if err := ownAlone(info); err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != f.Size {
		return fmt.Errorf("it has %d bytes and not %d", info.Size(), f.Size)
	}
	s.mu.Lock()
	known := s.verified[f.SHA256+f.Name]
	s.mu.Unlock()
	if known != nil && unchanged(known, info) {
		return nil
	}
	got, err := sum(fd)
	if err != nil {
		return err
	}
	if got != f.SHA256 {
		return fmt.Errorf("its SHA-256 is %s and not %s", got, f.SHA256)
	}
	s.mu.Lock()
	s.verified[f.SHA256+f.Name] = info
	s.mu.Unlock()
	return nil
}

func unchanged(a, b os.FileInfo) bool {
	was, is := a.Sys().(*syscall.Stat_t), b.Sys().(*syscall.Stat_t)
	// Adding or removing a link, as a tree does, changes the time of a file's last change.
	return os.SameFile(a, b) && a.Size() == b.Size() && was.Mtim == is.Mtim && (was.Ctim == is.Ctim || was.Nlink != is.Nlink)
}

// ownAlone refuses files that users other than this process's may write.
func ownAlone(info os.FileInfo) error {
	if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return errors.New("others than the server may write it")
	}
	return nil
}
