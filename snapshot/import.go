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
	"sync/atomic"
	"syscall"

	"filippo.io/age"

	"github.com/bothy-dev/bothy"
)

// ImportOptions configure the import of an untrusted archive.
type ImportOptions struct {
	Passphrase string
	// Trusted are the keys whose signature makes memory trusted. Of other archives only the
	// files are kept.
	Trusted []PublicKey
	// Accept is called before anything is written. It checks the manifest, assigns its identity
	// here, and returns the room for its parts. unpacked is the size of all parts in the
	// archive in bytes, including those that are dropped.
	Accept func(m *Manifest, unpacked int64) (Room, error)
}

// Room limits the space that an archive takes.
type Room interface {
	// Take is called before each block is written, and returns an error if that is too much.
	Take(bytes int64) error
}

const (
	// maxManifestBytes limits an imported manifest.
	maxManifestBytes = 1 << 20
	// maxPreface limits how much of an archive is read before its manifest is known.
	maxPreface = 4 << 20
	// maxWindow limits the memory for decompression: twice what Export's archives need.
	maxWindow = 16 << 20
	// maxHeaderBytes is the space for a part's tar header, with padding.
	maxHeaderBytes = 16 << 10
)

// Import unpacks an archive into dir, which must be empty, and verifies every byte that it
// keeps. After an error the contents of dir are useless.
func Import(ctx context.Context, r io.Reader, dir string, o ImportOptions) (*Manifest, error) {
	i := &importer{ctx: ctx, dir: dir, o: o, packed: newBounded(ctx, r)}
	m, err := i.run()
	// An error of the source is more precise than what its readers make of it.
	if cause := i.packed.err.Load(); err != nil && cause != nil {
		err = asArchiveError(*cause)
	}
	return m, err
}

type importer struct {
	ctx context.Context
	dir string
	o   ImportOptions
	// packed is the archive, and plain the tar in it.
	packed, plain *bounded
	room          Room
}

func (i *importer) run() (*Manifest, error) {
	in, err := i.decrypt(bufio.NewReader(i.packed))
	if err != nil {
		return nil, err
	}
	z, err := decompress(i.ctx, in)
	if err != nil {
		return nil, asArchiveError(err)
	}
	defer z.Close()
	i.plain = newBounded(i.ctx, z)
	t := tar.NewReader(i.plain)
	m, by, err := readManifest(t)
	if err != nil {
		return nil, err
	}
	all := m.Parts
	total, err := m.check()
	if err != nil {
		return nil, err
	}
	m.Detail = ""
	if why := untrusted(by, i.o.Trusted); why != "" {
		m.dropMemory(why)
	}
	if i.room, err = i.o.Accept(m, total); err != nil {
		return nil, err
	}
	// From here on the manifest limits the size. Incompressible data grows by less than a
	// sixteenth.
	total += int64(len(all)+2) * maxHeaderBytes
	i.plain.left.Add(total)
	i.packed.left.Add(total + total/16)
	if err := i.parts(t, all, m); err != nil {
		return nil, err
	}
	// Read to the very end, where the checksum of the whole is.
	i.plain.left.Store(min(i.plain.left.Load(), maxHeaderBytes))
	if behind, err := io.Copy(io.Discard, i.plain); err != nil || behind > 0 {
		return nil, asArchiveError(cmp.Or(err, fmt.Errorf("%d bytes follow its end", behind)))
	}
	if err := measure(i.dir, m); err != nil {
		return nil, err
	}
	if err := Rewrite(i.dir, m); err != nil {
		return nil, err
	}
	return m, Verify(i.ctx, i.dir, m, true)
}

func (i *importer) decrypt(r *bufio.Reader) (io.Reader, error) {
	head, err := r.Peek(len(ageMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(head) != ageMagic {
		return r, nil
	}
	id, err := newIdentity(i.ctx, i.o.Passphrase)
	if err != nil {
		return nil, err
	}
	in, err := age.Decrypt(r, id)
	switch {
	case err == nil:
		return in, nil
	case i.ctx.Err() != nil:
		return nil, context.Cause(i.ctx)
	}
	if known := (*bothy.Error)(nil); errors.As(err, &known) {
		return nil, known
	}
	return nil, bothy.Errorf(bothy.CodeInvalid, "the passphrase is not the one of this archive").
		WithHint("Give the passphrase that it was exported with.").Because(err)
}

// asArchiveError returns the error for a damaged archive, unless err is more specific.
func asArchiveError(err error) error {
	var known *bothy.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return bothy.Errorf(bothy.CodeSnapshotDamaged, "this is not a complete archive of a snapshot").
		WithHint("Export it again, and copy it completely.").Because(err)
}

// readManifest reads the beginning of an archive, and returns who signed it.
func readManifest(t *tar.Reader) (*Manifest, PublicKey, error) {
	h, err := t.Next()
	if err != nil || h.Name != ManifestName || h.Typeflag != tar.TypeReg || h.Size > maxManifestBytes {
		return nil, "", asArchiveError(err)
	}
	b, err := io.ReadAll(t)
	if err != nil {
		return nil, "", asArchiveError(err)
	}
	by, err := signer(b, h.PAXRecords)
	if err != nil {
		return nil, "", err
	}
	m, err := Parse(b)
	return m, by, err
}

// parts writes the parts that are kept, skips the manifest's other parts, and refuses unlisted
// ones.
func (i *importer) parts(t *tar.Reader, all []Part, m *Manifest) error {
	want := map[string]int64{}
	for _, p := range all {
		want[p.Name] = p.Size
	}
	if m.Has(MemoryDir) {
		if err := os.Mkdir(filepath.Join(i.dir, MemoryDir), 0o711); err != nil {
			return err
		}
	}
	for {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF) && len(want) > 0:
			return damaged("%d of its parts are missing", len(want))
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return asArchiveError(err)
		}
		size, ok := want[h.Name]
		if !ok || h.Typeflag != tar.TypeReg || h.Size != size {
			return damaged("it contains %q, which its manifest does not list", h.Name)
		}
		delete(want, h.Name)
		if err := i.part(h.Name, t, m.Has(h.Name)); err != nil {
			return err
		}
	}
}

func (i *importer) part(name string, r io.Reader, keep bool) error {
	if !keep {
		_, err := io.Copy(io.Discard, r)
		return asArchiveErrorOrNil(err)
	}
	err := writeSparse(filepath.Join(i.dir, name), r, i.room)
	var pe *fs.PathError
	if errors.As(err, &pe) || errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return asArchiveErrorOrNil(err)
}

func asArchiveErrorOrNil(err error) error {
	if err == nil {
		return nil
	}
	return asArchiveError(err)
}

// measure determines how much space the parts take here.
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

// bounded limits the number of bytes read, and stops when its context ends. One reads it, and
// another may raise the limit.
type bounded struct {
	ctx  context.Context
	r    io.Reader
	left atomic.Int64
	err  atomic.Pointer[error] // other than io.EOF
}

// newBounded returns a reader of what stands before the limit is known.
func newBounded(ctx context.Context, r io.Reader) *bounded {
	b := &bounded{ctx: ctx, r: r}
	b.left.Store(maxPreface)
	return b
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.err.Load(); err != nil {
		return 0, *err
	}
	if err := context.Cause(b.ctx); err != nil {
		b.err.Store(&err)
		return 0, err
	}
	// Read one byte more to detect a longer stream.
	left := b.left.Load()
	n, err := b.r.Read(p[:min(int64(len(p)), left+1)])
	if int64(n) > left {
		n, err = int(left), damaged("it is longer than its manifest says").
			WithHint("Export it again, and copy it whole.")
	}
	b.left.Add(-int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		b.err.Store(&err)
	}
	return n, err
}
