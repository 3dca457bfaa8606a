package agent

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// generation is the file that tells programs that they are in a copy.
const generation = "/run/bothy/generation"

// mark is the file as it was last written. It stays open if it can be rewritten in place (in
// gVisor's kernel a single write is atomic), since creating another takes a third of the time of
// an adoption.
type mark struct {
	fd       int
	dev, ino uint64
	size     int
}

// leaveMark writes the mark. The caller holds identity.adopting.
func (a *Agent) leaveMark(text string) error {
	path := filepath.Join(a.opt.Root, generation)
	if a.identity.mark.rewrite(path, text) {
		return nil
	}
	a.identity.mark.close()
	if err := a.replaceFile(generation, text, 0o444); err != nil {
		return err
	}
	if a.sentry {
		a.identity.mark = openMark(path, len(text))
	}
	return nil
}

// openMark keeps a mark of n bytes open. It returns nil if something else is already there.
func openMark(path string, size int) *mark {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	m := &mark{fd: fd, size: size}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		m.close()
		return nil
	}
	m.dev, m.ino = st.Dev, st.Ino
	return m
}

// rewrite reports whether it succeeded: the mark must still be in place and have its old length.
func (m *mark) rewrite(path, text string) bool {
	if m == nil || len(text) != m.size {
		return false
	}
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Dev != m.dev || st.Ino != m.ino || st.Size != int64(m.size) {
		return false
	}
	n, err := unix.Pwrite(m.fd, []byte(text), 0)
	return err == nil && n == len(text)
}

func (m *mark) close() {
	if m != nil {
		_ = unix.Close(m.fd)
	}
}
