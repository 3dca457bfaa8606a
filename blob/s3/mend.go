package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

// Piece is a part of a file of a tree or, if File is empty, the tree's index.
type Piece struct {
	Name, File string
	At, Size   int64
}

// MaxPiece is the size limit of a piece.
const MaxPiece = maxIndexBytes

// Piece reads a piece of a tree on this host's disk. A missing one is fs.ErrNotExist.
func (s *Store) Piece(ctx context.Context, p Piece) ([]byte, error) {
	if err := s.local.CheckName(p.Name); err != nil {
		return nil, err
	}
	if p.File == "" {
		return os.ReadFile(s.state(indexes, p.Name))
	}
	if !filepath.IsLocal(p.File) || p.At < 0 || p.Size < 1 || p.Size > chunkSize {
		return nil, invalid("%q has no piece of %d bytes at %d", p.File, p.Size, p.At)
	}
	dir, release, err := s.local.Open(ctx, p.Name)
	if err != nil {
		return nil, err
	}
	defer release()
	return readPiece(filepath.Join(dir, p.File), p.At, p.Size)
}

func readPiece(path string, at, size int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, size)
	if _, err := f.ReadAt(data, at); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

// is reports whether data is the content of the chunk.
func (c *chunk) is(data []byte) bool {
	sum := sha256.Sum256(data)
	return int64(len(data)) == c.Size && hex.EncodeToString(sum[:]) == c.SHA256
}

// isDamage reports whether an error means that an object is missing or damaged.
func isDamage(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || bothy.ErrorCode(err) == bothy.CodeSnapshotDamaged
}

// mender repairs a tree in the bucket with pieces that other hosts still have.
type mender struct {
	s               *Store
	name            string
	found, repaired atomic.Int64
}

// mend fetches the bytes of a damaged chunk from another host's disk, and writes them to the
// bucket again.
func (m *mender) mend(ctx context.Context, f *file, c *chunk) ([]byte, error) {
	m.found.Add(1)
	if m.s.o.Elsewhere == nil {
		return nil, fs.ErrNotExist
	}
	var data []byte
	err := m.s.o.Elsewhere(ctx, Piece{Name: m.name, File: f.Name, At: c.At, Size: c.Size}, func(b []byte) bool {
		ok := c.is(b)
		if ok {
			data = b
		}
		return ok
	})
	if err != nil {
		return nil, err
	}
	m.put(ctx, c, data)
	return data, nil
}

// put writes a chunk to the bucket again. If that fails, the next reader tries again.
func (m *mender) put(ctx context.Context, c *chunk, data []byte) {
	s := m.s
	err := failpoint.Hit("s3.mend")
	if err == nil {
		err = s.bucket.putChunk(ctx, s.bucket.key(s.o.Kind, m.name)+"/", c, data)
	}
	if err != nil {
		s.log.Warn("cannot repair a damaged chunk in the object storage", "kind", s.o.Kind, "name", m.name, "error", err)
		return
	}
	m.repaired.Add(1)
}

// report logs and counts the damage that was found.
func (m *mender) report() {
	found, repaired := m.found.Load(), m.repaired.Load()
	if found == 0 {
		return
	}
	m.s.counts.damaged.Add(found)
	m.s.counts.repaired.Add(repaired)
	m.s.log.Error("chunks in the object storage were damaged", "kind", m.s.o.Kind, "name", m.name, "chunks", found, "repaired", repaired)
	if m.s.o.OnDamage != nil {
		m.s.o.OnDamage(m.name, int(found), int(repaired))
	}
}

// putChunk stores a chunk in the form that its index describes.
func (b *Bucket) putChunk(ctx context.Context, prefix string, c *chunk, data []byte) error {
	if c.Zstd {
		packed := buffers.Get().(*[]byte)
		defer buffers.Put(packed)
		data = encoder().EncodeAll(data, (*packed)[:0])
	}
	return b.put(ctx, prefix+c.object(), data, false)
}

// mendIndex fetches a damaged or missing index from another host, and writes it to the bucket
// again.
func (s *Store) mendIndex(ctx context.Context, name string, err error) (*index, []byte, error) {
	if !isDamage(err) {
		return nil, nil, err
	}
	m := &mender{s: s, name: name}
	var i *index
	var text []byte
	asked := fs.ErrNotExist
	if s.o.Elsewhere != nil {
		asked = s.o.Elsewhere(ctx, Piece{Name: name}, func(b []byte) bool {
			got, err := decodeIndex(name, b)
			if err == nil {
				i, text = got, b
			}
			return err == nil
		})
	}
	if asked != nil {
		if !errors.Is(err, fs.ErrNotExist) { // otherwise there may be no such tree
			m.found.Add(1)
			m.report()
		}
		return nil, nil, err
	}
	m.found.Add(1)
	defer m.report()
	if err := s.bucket.put(ctx, s.bucket.key(s.o.Kind, name, indexName), text, false); err != nil {
		s.log.Warn("cannot repair a damaged index in the object storage", "kind", s.o.Kind, "name", name, "error", err)
	} else {
		m.repaired.Add(1)
	}
	return i, text, nil
}

// Mend checks, by listing, whether trees on this host have lost objects in the bucket, and
// writes those again.
func (s *Store) Mend(ctx context.Context) error {
	if err := s.bucket.Usable(); err != nil {
		return err
	}
	names, err := s.stateNames(indexes)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := s.mendTree(ctx, name); err != nil {
			errs = append(errs, err)
			if errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
				break
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Store) mendTree(ctx context.Context, name string) error {
	dir, release, err := s.local.Open(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // others may have it
	}
	if err != nil {
		return err
	}
	defer release()
	text, err := os.ReadFile(s.state(indexes, name))
	if err != nil {
		return err
	}
	i, err := decodeIndex(name, text)
	if err != nil {
		return err
	}
	there, err := s.bucket.list(ctx, s.bucket.key(s.o.Kind, name)+"/")
	if err != nil {
		return err
	}
	// Do not restore what another host has deleted.
	if named, err := s.o.Named(ctx, name); err != nil || !named {
		return err
	}
	m := &mender{s: s, name: name}
	defer m.report()
	for n := range i.Files {
		f := &i.Files[n]
		for k := range f.Chunks {
			c := &f.Chunks[k]
			if size, ok := there[c.object()]; ok && size == c.Stored {
				continue
			}
			m.found.Add(1)
			data, err := readPiece(filepath.Join(dir, f.Name), c.At, c.Size)
			if err != nil {
				return err
			}
			if c.is(data) {
				m.put(ctx, c, data)
			}
		}
	}
	if size, ok := there[indexName]; !ok || size != int64(len(text)) {
		m.found.Add(1)
		if err := s.bucket.put(ctx, s.bucket.key(s.o.Kind, name, indexName), text, false); err != nil {
			return err
		}
		m.repaired.Add(1)
	}
	return nil
}
