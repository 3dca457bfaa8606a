package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// large is the size from which the guest lets its kernel copy a file.
const large = 9<<20 + 123

func (b *box) uploadSized(path string, r io.Reader, size int64) error {
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	_, err := b.s.Files.Write(ctx, b.id, path, r, bothy.WriteOptions{Size: size})
	return err
}

func (b *box) download(path string) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	r, _, err := b.s.Files.Read(ctx, b.id, path, "")
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		b.Fatal(err)
	}
	return string(content)
}

// Large files arrive unchanged, both ways.
func TestLargeFiles(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	for _, size := range []int{1 << 20, 1<<20 + 1, large} {
		content := make([]byte, size)
		rand.Read(content)
		if err := b.uploadSized("data", bytes.NewReader(content), int64(size)); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		if got := b.sh("", "sha256sum < data; stat -c '%a %U' data; ls -A"); got != hex.EncodeToString(sum[:])+"  -\n644 user\ndata" {
			t.Errorf("%d bytes: the sandbox has %q", size, got)
		}
		if got := b.download("/workspace/data"); got != string(content) {
			t.Errorf("%d bytes: %d come back, or different ones", size, len(got))
		}
	}
}

// endingReader fails after a number of bytes.
type endingReader struct {
	io.Reader
	err error
}

func (e endingReader) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err == io.EOF {
		err = e.err
	}
	return n, err
}

// An upload that is cut off or does not fit changes nothing.
func TestLargeUploadThatFails(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{DiskMB: 128})
	const path, old = "/workspace/data", "what was there before"
	if err := b.uploadSized(path, strings.NewReader(old), int64(len(old))); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("the sender disconnected")
	half := endingReader{io.LimitReader(zeros{}, large/2), lost}
	if err := b.uploadSized(path, half, large); !errors.Is(err, lost) && bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("a partial upload: %v", err)
	}
	wantError(t, b.uploadSized(path, io.LimitReader(zeros{}, 512<<20), 512<<20), bothy.CodeDiskFull, path)
	// The guest may notice a broken connection later than the sender.
	for begun := time.Now(); b.sh("", "ls -A /workspace") != "data"; time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > hangs {
			t.Fatalf("the failed uploads left %q", b.sh("", "ls -A /workspace"))
		}
	}
	if got := b.read(path); got != old {
		t.Errorf("the old file holds %.50q", got)
	}
	if err := b.uploadSized(path, io.LimitReader(zeros{}, 32<<20), 32<<20); err != nil {
		t.Errorf("an upload that fits: %v", err)
	}
	b.usable()
}

// A slow request does not delay the guest's other callers.
func TestSlowUploadBlocksNobody(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- b.uploadSized("/workspace/slow", r, large) }()
	content := strings.Repeat("slow", large/4+1)[:large]
	for rest := content; rest != ""; {
		n := min(len(rest), 2<<20)
		if _, err := io.WriteString(w, rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
		if got := b.sh("", "echo here"); got != "here" {
			t.Errorf("during the upload: %q", got)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := b.download("/workspace/slow"); got != content {
		t.Errorf("%d bytes arrived", len(got))
	}
}
