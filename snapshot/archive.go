package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// An archive is one portable file: a tar of the manifest, which comes first and is
// signed by the server, and the parts, compressed with zstd, and encrypted with age if
// a passphrase is given.

// ageMagic begins every encrypted archive.
const ageMagic = "age-encryption.org/"

// Export writes the snapshot in dir as an archive, signed with a key.
func Export(ctx context.Context, w io.Writer, dir string, m *Manifest, passphrase string, key Key) error {
	if err := Verify(ctx, dir, m, true); err != nil {
		return err
	}
	out := io.WriteCloser(nopCloser{w})
	if passphrase != "" {
		r, err := newRecipient(ctx, passphrase)
		if err != nil {
			return err
		}
		if out, err = age.Encrypt(w, r); err != nil {
			return err
		}
	}
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(2))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	if err := addManifest(t, dir, key); err != nil {
		return err
	}
	for _, p := range m.Parts {
		if err := addFile(ctx, t, dir, p.Name); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close(), out.Close())
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func addManifest(t *tar.Writer, dir string, key Key) error {
	b, err := os.ReadFile(filepath.Join(dir, ManifestName))
	if err != nil {
		return err
	}
	signature, err := key.sign(b)
	if err != nil {
		return err
	}
	h := header(ManifestName, int64(len(b)))
	h.PAXRecords = signature
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(t, bytes.NewReader(b))
	return err
}

func addFile(ctx context.Context, t *tar.Writer, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(header(name, info.Size())); err != nil {
		return err
	}
	_, err = io.Copy(t, &reader{ctx, f})
	return err
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Name: name, Size: size, Mode: 0o600, Format: tar.FormatPAX}
}
