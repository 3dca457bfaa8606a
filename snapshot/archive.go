package snapshot

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/bothy-dev/bothy"
)

// An archive is one portable file: a tar of the manifest, which comes first,
// and the parts, compressed with zstd, and encrypted with age if a passphrase
// is given.

// ageMagic begins every encrypted archive.
const ageMagic = "age-encryption.org/"

// workFactor is the logarithm of the work that each guess at a passphrase costs.
var workFactor = 18

// maxManifestBytes bounds a manifest that comes from elsewhere.
const maxManifestBytes = 1 << 20

// Export writes the snapshot in dir as an archive.
func Export(ctx context.Context, w io.Writer, dir string, m *Manifest, passphrase string) error {
	if err := Verify(ctx, dir, m, true); err != nil {
		return err
	}
	out := io.WriteCloser(nopCloser{w})
	if passphrase != "" {
		r, err := age.NewScryptRecipient(passphrase)
		if err != nil {
			return err
		}
		r.SetWorkFactor(workFactor)
		if out, err = age.Encrypt(w, r); err != nil {
			return err
		}
	}
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(2))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	names := []string{ManifestName}
	for _, p := range m.Parts {
		names = append(names, p.Name)
	}
	for _, name := range names {
		if err := addFile(ctx, t, dir, name); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close(), out.Close())
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

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
	if err := t.WriteHeader(&tar.Header{Name: name, Size: info.Size(), Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(t, &reader{ctx, f})
	return err
}

// Import unpacks an archive into dir, which is empty, and checks every byte of
// it. What it leaves in dir after an error is worth nothing.
func Import(ctx context.Context, r io.Reader, dir, passphrase string) (*Manifest, error) {
	in, err := decrypt(bufio.NewReader(r), passphrase)
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(in, zstd.WithDecoderMaxMemory(256<<20), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, notAnArchive(err)
	}
	defer z.Close()
	t := tar.NewReader(z)
	m, err := importManifest(t, dir)
	if err != nil {
		return nil, err
	}
	if err := importParts(ctx, t, dir, m); err != nil {
		return nil, err
	}
	// What checks the whole, and who sealed it, comes at its very end.
	if behind, err := io.Copy(io.Discard, z); err != nil || behind > 0 {
		return nil, notAnArchive(cmp.Or(err, fmt.Errorf("%d bytes lie behind its end", behind)))
	}
	if err := measure(dir, m); err != nil {
		return nil, err
	}
	return m, Verify(ctx, dir, m, true)
}

// measure finds out what the parts take up here.
func measure(dir string, m *Manifest) error {
	for i := range m.Parts {
		p := &m.Parts[i]
		if !p.Sparse {
			p.Stored = 0
			continue
		}
		info, err := os.Stat(filepath.Join(dir, p.Name))
		if err != nil {
			return damaged("%s is missing", p.Name)
		}
		p.Stored = storedBytes(info)
	}
	return nil
}

func decrypt(r *bufio.Reader, passphrase string) (io.Reader, error) {
	head, err := r.Peek(len(ageMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(head) != ageMagic {
		return r, nil
	}
	if passphrase == "" {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the archive is encrypted").WithHint("Give its passphrase.")
	}
	id, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, err
	}
	in, err := age.Decrypt(r, id)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the archive does not open with this passphrase").
			WithHint("Give the passphrase that it was exported with.").Because(err)
	}
	return in, nil
}

func notAnArchive(err error) error {
	return bothy.Errorf(bothy.CodeSnapshotDamaged, "this is not a whole archive of a snapshot").
		WithHint("Export it again, and copy it whole.").Because(err)
}

func importManifest(t *tar.Reader, dir string) (*Manifest, error) {
	h, err := t.Next()
	if err != nil || h.Name != ManifestName || h.Size > maxManifestBytes {
		return nil, notAnArchive(err)
	}
	if err := writeFile(filepath.Join(dir, ManifestName), t); err != nil {
		return nil, notAnArchive(err)
	}
	return Read(dir)
}

// importParts writes what the manifest lists, and refuses everything else.
func importParts(ctx context.Context, t *tar.Reader, dir string, m *Manifest) error {
	want := map[string]int64{}
	for _, p := range m.Parts {
		if p.Name != FilesTar && !isMemoryPart(p.Name) {
			return damaged("its manifest names %q", p.Name)
		}
		want[p.Name] = p.Size
	}
	if err := os.MkdirAll(filepath.Join(dir, MemoryDir), 0o711); err != nil {
		return err
	}
	for {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return removeEmpty(filepath.Join(dir, MemoryDir))
		case err != nil:
			return notAnArchive(err)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		size, ok := want[h.Name]
		if !ok || h.Typeflag != tar.TypeReg || h.Size != size {
			return damaged("it holds %q, which its manifest does not", h.Name)
		}
		delete(want, h.Name)
		if err := writeSparse(filepath.Join(dir, h.Name), t); err != nil {
			var pe *fs.PathError
			if errors.As(err, &pe) {
				return fmt.Errorf("write %s: %w", h.Name, err)
			}
			return notAnArchive(err)
		}
	}
}

// isMemoryPart accepts plain names below the folder of the memory.
func isMemoryPart(name string) bool {
	base, ok := strings.CutPrefix(name, MemoryDir+"/")
	return ok && base != "" && !strings.ContainsAny(base, "/\x00") && base != "." && base != ".."
}

func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

func writeFile(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
