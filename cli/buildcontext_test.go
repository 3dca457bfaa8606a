package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Sockets in a build context are skipped, as other image builders do. Other special files are an error
// that names them, before the server builds anything.
func TestContextsWithSocketsAndDevices(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o644))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "socket")})
	must(err)
	defer l.Close()
	names, err := packedNames(t, dir)
	if err != nil || !slices.Equal(names, []string{"file"}) {
		t.Errorf("packed %v, %v", names, err)
	}
	must(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	if _, err := packedNames(t, dir); err == nil || !strings.Contains(err.Error(), "pipe is neither a file") {
		t.Errorf("a pipe: %v", err)
	}
	must(os.WriteFile(filepath.Join(dir, ".dockerignore"), []byte("pipe\n"), 0o644))
	names, err = packedNames(t, dir)
	if err != nil || !slices.Equal(names, []string{".dockerignore", "file"}) {
		t.Errorf("packed %v, %v", names, err)
	}
	if os.Geteuid() != 0 {
		return // only root makes devices
	}
	must(unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	if _, err := packedNames(t, dir); err == nil || !strings.Contains(err.Error(), "null is neither a file") {
		t.Errorf("a device: %v", err)
	}
}

// packedNames returns the names in the tar of a folder that is sent.
func packedNames(t *testing.T, dir string) ([]string, error) {
	t.Helper()
	ignored, err := readIgnore(dir, "Dockerfile")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := packContext(&b, dir, ignored); err != nil {
		return nil, err
	}
	var names []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		names = append(names, h.Name)
	}
}
