package e2e

import (
	"archive/tar"
	"context"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestTmpIsOnTheDisk(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	if got := b.sh("", "stat -c %a /tmp; stat -c %d / /tmp | uniq | wc -l; ls -A /tmp | wc -l"); got != "1777\n1\n0" {
		t.Errorf("mode of /tmp, file systems, entries: %q", got)
	}
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{DiskMB: 128})
	asEachUser(t, func(t *testing.T, user string) {
		r := b.try(line(user, "dd if=/dev/zero of=/var/tmp/fill bs=1M"))
		if r.ExitCode == 0 || !strings.Contains(r.Stderr, "No space left on device") {
			t.Errorf("filling the disk: %+v", r)
		}
		if mb, _ := strconv.Atoi(b.sh(user, "du -m /var/tmp/fill | cut -f1")); mb < 100 || mb > 128 {
			t.Errorf("%d MB fit on a disk of 128 MB", mb)
		}
		// Files can be removed from a full disk.
		b.sh(user, "true; ls /; cat /etc/hostname")
		b.sh(user, "rm /var/tmp/fill && dd if=/dev/zero of=/var/tmp/fill bs=1M count=64 && rm /var/tmp/fill")
	})
	b.usable()
	if r := b.python("", "manyfiles.py", "20000"); r.Stdout != "20000\n" || r.ExitCode != 0 {
		t.Errorf("20,000 empty files: %+v", r)
	}
	b.usable()
}

func TestUploadThatDoesNotFit(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{DiskMB: 128})
	const path, old = "/workspace/data", "what was there before"
	if err := b.uploadSized(path, strings.NewReader(old), int64(len(old))); err != nil {
		t.Fatal(err)
	}
	_, err := b.upload(path, io.LimitReader(zeros{}, 256<<20))
	wantError(t, err, bothy.CodeDiskFull, path)
	if got := b.read(path); got != old {
		t.Errorf("the old file contains %.50q", got)
	}
	if got := b.sh("", "ls -A /workspace; df -m --output=used / | tail -1 | tr -d ' '"); !strings.HasPrefix(got, "data\n") || len(got) > len("data\n10") {
		t.Errorf("after the failed upload the folder and the disk hold %q", got)
	}
	if _, err := b.upload(path, io.LimitReader(zeros{}, 64<<20)); err != nil {
		t.Errorf("an upload that fits: %v", err)
	}
	b.usable()
}

func TestArchiveThatDoesNotFit(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{DiskMB: 64})
	err := b.unpack("/workspace/unpacked", func(w *tar.Writer) error {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "large", Size: 128 << 20, Mode: 0o644}); err != nil {
			return err
		}
		_, err := io.Copy(w, io.LimitReader(zeros{}, 128<<20))
		return err
	})
	wantError(t, err, bothy.CodeDiskFull, "large")
	b.sh("", "rm -rf /workspace/unpacked")
	b.usable()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (b *box) upload(path string, r io.Reader) (*bothy.FileInfo, error) {
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	return b.s.Files.Write(ctx, b.id, path, r, bothy.WriteOptions{})
}

func (b *box) read(path string) string {
	b.Helper()
	content, err := b.tryRead(path, "")
	if err != nil {
		b.Fatal(err)
	}
	return content
}

// tryRead reads at most a MiB of a file.
func (b *box) tryRead(path, user string) (string, error) {
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	r, _, err := b.s.Files.Read(ctx, b.id, path, user)
	if err != nil {
		return "", err
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, 1<<20))
	return string(content), err
}

// unpack streams an archive to the sandbox while write produces it.
func (b *box) unpack(path string, write func(*tar.Writer) error) error {
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	r, w := io.Pipe()
	go func() {
		t := tar.NewWriter(w)
		err := write(t)
		if err == nil {
			err = t.Close()
		}
		w.CloseWithError(err)
	}()
	err := b.s.Files.WriteArchive(ctx, b.id, path, "", r)
	r.Close()
	return err
}

func TestManyOpenFiles(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{MemoryMB: 512})
	asEachUser(t, func(t *testing.T, user string) {
		r := b.python(user, "openfiles.py", "100000")
		if r.ExitCode != 0 && !r.OOMKilled {
			t.Errorf("%+v", r)
		}
		t.Logf("opened %s", r.Stdout)
	})
	b.usable()
}

// wantError checks an error's code, that its detail names the value at fault, and that it has a hint.
func wantError(t *testing.T, err error, code bothy.Code, value string) {
	t.Helper()
	e := bothy.AsError(err)
	if err == nil || e.Code != code || !strings.Contains(e.Detail, value) || e.Hint == "" {
		t.Errorf("got %v (hint %q), want %s with %q in its detail", err, e.Hint, code, value)
	}
}
