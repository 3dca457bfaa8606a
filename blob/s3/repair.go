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
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

// Piece is a part of a file of a tree or, if File is empty, the tree's index.
type Piece struct {
	Kind, Name, File string
	At, Size         int64
}

func (p Piece) String() string {
	if p.File == "" {
		return "its index"
	}
	return fmt.Sprintf("%s at %d", p.File, p.At)
}

// MaxPiece is the size limit of a piece.
const MaxPiece = maxIndexBytes

// Repairs says how damage in the bucket is repaired and reported.
type Repairs struct {
	// Copies offers copies of a piece that exist outside the bucket, on this host or others,
	// until good accepts one. It returns fs.ErrNotExist if good accepts none. It is nil if there
	// are no copies.
	Copies func(ctx context.Context, p Piece, good func([]byte) bool) error
	// OnDamage is called for each tree in which damage was found.
	OnDamage func(Damage)
}

// Damage is what was wrong with a tree in the bucket.
type Damage struct {
	Kind, Name string
	// Found is the number of missing or damaged pieces, and Repaired of those that were written
	// again.
	Found, Repaired int
	// Lost are those of which no copy was found.
	Lost []Piece
	// Err is why a piece that is not lost was not written again. The next reader tries again.
	Err error
}

// SetRepairs must be called before the bucket is used; otherwise nothing is repaired.
func (b *Bucket) SetRepairs(r Repairs) { b.repairs = r }

// Counts are the pieces of a kind of tree since the bucket was opened.
type Counts struct {
	// Checked were read by Scrub. Damaged were wrong or missing, whoever found it, and Repaired
	// were written again.
	Checked, Damaged, Repaired int64
}

// Counts returns those of a kind.
func (b *Bucket) Counts(kind string) Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[kind]
}

func (b *Bucket) count(kind string, c Counts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.counts[kind]
	n.Checked, n.Damaged, n.Repaired = n.Checked+c.Checked, n.Damaged+c.Damaged, n.Repaired+c.Repaired
	b.counts[kind] = n
}

// Piece reads a piece of a tree on this host's disk. A missing one is fs.ErrNotExist.
func (s *Store) Piece(ctx context.Context, p Piece) ([]byte, error) {
	if err := s.local.CheckName(p.Name); err != nil {
		return nil, err
	}
	if p.File == "" {
		text, err := os.ReadFile(s.state(indexes, p.Name))
		if err != nil {
			return nil, err
		}
		_, err = decodeIndex(p.Name, text)
		return text, err
	}
	if !filepath.IsLocal(p.File) {
		return nil, invalid("%q is not a file of a tree", p.File)
	}
	dir, release, err := s.local.Open(ctx, p.Name)
	if err != nil {
		return nil, err
	}
	defer release()
	f, err := os.Open(filepath.Join(dir, p.File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadPiece(f, p)
}

// ReadPiece reads the bytes of a piece from a copy of its file.
func ReadPiece(f *os.File, p Piece) ([]byte, error) {
	if p.At < 0 || p.Size < 1 || p.Size > chunkSize {
		return nil, invalid("%s has no piece of %d bytes at %d", p.File, p.Size, p.At)
	}
	data := make([]byte, p.Size)
	if _, err := f.ReadAt(data, p.At); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return data, nil
}

// IndexOf returns the index that a folder would have as a tree. It reads all files.
func IndexOf(ctx context.Context, dir string) ([]byte, error) {
	i, err := scan(dir)
	if err != nil {
		return nil, err
	}
	for n := range i.Files {
		if err := i.Files[n].describe(ctx, dir); err != nil {
			return nil, err
		}
	}
	return i.encode()
}

// describe computes the chunks of a large file.
func (f *file) describe(ctx context.Context, dir string) error {
	if f.Size <= inlineBytes {
		return nil
	}
	r, err := os.Open(filepath.Join(dir, f.Name))
	if err != nil {
		return err
	}
	defer r.Close()
	if f.Chunks, err = f.pieces(r); err != nil {
		return err
	}
	for n := range f.Chunks {
		err := f.Chunks[n].read(r, func([]byte) error { return ctx.Err() })
		if err != nil {
			return err
		}
	}
	return nil
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

// repair repairs one tree in the bucket with copies of its pieces.
type repair struct {
	b  *Bucket
	mu sync.Mutex
	Damage
}

func (b *Bucket) repair(kind, name string) *repair {
	return &repair{b: b, Damage: Damage{Kind: kind, Name: name}}
}

// copies looks for an intact copy of a damaged piece.
func (r *repair) copies(ctx context.Context, p Piece, good func([]byte) bool) error {
	p.Kind, p.Name = r.Kind, r.Name
	err := error(fs.ErrNotExist)
	if r.b.repairs.Copies != nil {
		err = r.b.repairs.Copies(ctx, p, good)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Found++
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.Lost = append(r.Lost, p)
	case err != nil:
		r.Err = err
	}
	return err
}

// chunk finds the bytes of a damaged chunk, and writes them to the bucket again.
func (r *repair) chunk(ctx context.Context, f *file, c *chunk) ([]byte, error) {
	var data []byte
	err := r.copies(ctx, Piece{File: f.Name, At: c.At, Size: c.Size}, func(b []byte) bool {
		ok := c.is(b)
		if ok {
			data = b
		}
		return ok
	})
	if err == nil {
		r.written(r.b.putChunk(ctx, r.b.key(r.Kind, r.Name)+"/", c, data))
	}
	return data, err
}

// index finds a copy of an index that could not be read because of an error, which it returns if
// there is none.
func (r *repair) index(ctx context.Context, because error) (i *index, text []byte, err error) {
	err = r.copies(ctx, Piece{}, func(b []byte) bool {
		got, err := decodeIndex(r.Name, b)
		if err == nil {
			i, text = got, b
		}
		return err == nil
	})
	if err != nil {
		return nil, nil, because
	}
	return i, text, nil
}

// putIndex writes an index to the bucket again.
func (r *repair) putIndex(ctx context.Context, text []byte) {
	r.written(r.b.put(ctx, r.b.key(r.Kind, r.Name, indexName), text, false))
}

// written records whether a piece was written again.
func (r *repair) written(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.Repaired++
	} else {
		r.Err = err
	}
}

// report counts and reports the damage that was found.
func (r *repair) report() {
	if r.Found == 0 {
		return
	}
	r.b.count(r.Kind, Counts{Damaged: int64(r.Found), Repaired: int64(r.Repaired)})
	if r.b.repairs.OnDamage != nil {
		r.b.repairs.OnDamage(r.Damage)
	}
}

// putChunk stores a chunk in the form that its index describes.
func (b *Bucket) putChunk(ctx context.Context, prefix string, c *chunk, data []byte) error {
	if err := failpoint.Hit("s3.repair"); err != nil {
		return err
	}
	if c.Zstd {
		packed := buffers.Get().(*[]byte)
		defer buffers.Put(packed)
		data = encoder().EncodeAll(data, (*packed)[:0])
	}
	return b.put(ctx, prefix+c.object(), data, false)
}
