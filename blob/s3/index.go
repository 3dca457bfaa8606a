package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bothy-dev/bothy"
)

const (
	// indexName is the object whose presence makes a tree visible.
	indexName     = "index.json"
	indexVersion  = 1
	maxIndexBytes = 64 << 20
	// chunkSize is the unit of transfer, verification and retry. Smaller chunks cost more
	// requests, larger ones more memory.
	chunkSize = 8 << 20
	// inlineBytes is the size up to which a file is stored in the index itself.
	inlineBytes = 64 << 10
	// maxFileBytes keeps sums of sizes from overflowing.
	maxFileBytes = 1 << 44
)

// index lists what a tree consists of.
type index struct {
	Version int `json:"version"`
	// Sealed says that the text ends with its checksum, SHA256. Indexes of earlier versions do
	// not. With both, no damage to one of them hides that there is a checksum.
	Sealed  bool     `json:"sealed,omitempty"`
	Folders []folder `json:"folders,omitempty"`
	Files   []file   `json:"files"`
	SHA256  string   `json:"sha256,omitempty"`
}

type folder struct {
	Name string      `json:"name"`
	Mode fs.FileMode `json:"mode"`
}

type file struct {
	Name string      `json:"name"`
	Mode fs.FileMode `json:"mode"`
	Size int64       `json:"size"`
	// Sparse marks a file with holes. Chunks that are entirely hole are omitted.
	Sparse bool    `json:"sparse,omitempty"`
	Chunks []chunk `json:"chunks,omitempty"`
	// Data is the content of a small file, instead of chunks.
	Data []byte `json:"data,omitempty"`
}

type chunk struct {
	At   int64 `json:"at"`
	Size int64 `json:"size"`
	// SHA256 is the checksum of the uncompressed bytes.
	SHA256 string `json:"sha256"`
	// Stored is the size of the object.
	Stored int64 `json:"stored"`
	Zstd   bool  `json:"zstd,omitempty"`
}

// object is the chunk's object name below its tree.
func (c chunk) object() string {
	if c.Zstd {
		return c.SHA256 + ".zst"
	}
	return c.SHA256
}

// size is the total size of the files, including holes.
func (i *index) size() (n int64) {
	for _, f := range i.Files {
		n += f.Size
	}
	return n
}

// room is roughly the disk space of the files.
func (i *index) room() (n int64) {
	for _, f := range i.Files {
		if !f.Sparse {
			n += f.Size
			continue
		}
		for _, c := range f.Chunks {
			n += c.Size
		}
	}
	return n
}

// transferred is the total size of the objects.
func (i *index) transferred() (n int64) {
	for _, f := range i.Files {
		n += int64(len(f.Data))
		for _, c := range f.Chunks {
			n += c.Stored
		}
	}
	return n
}

// encode returns the text of an index, sealed.
func (i *index) encode() ([]byte, error) {
	i.Sealed, i.SHA256 = true, ""
	text, err := json.Marshal(i)
	if err != nil {
		return nil, err
	}
	return seal(text[:len(text)-1]), nil
}

// seal completes the text of an index with its checksum. The rest of the text stays as it is, so
// that a server verifies fields that it does not know as well.
func seal(rest []byte) []byte {
	return fmt.Appendf(rest[:len(rest):len(rest)], `,"sha256":"%x"}`, sha256.Sum256(rest))
}

// sealBytes is how many bytes seal appends.
const sealBytes = len(`,"sha256":""}`) + 2*sha256.Size

func sealed(text []byte) bool {
	return len(text) > sealBytes && bytes.Equal(text, seal(text[:len(text)-sealBytes]))
}

// decodeIndex parses and validates an index. It may have been written by anyone.
func decodeIndex(name string, text []byte) (*index, error) {
	var i index
	if err := json.Unmarshal(text, &i); err != nil {
		return nil, damaged(name, "its index cannot be read").Because(err)
	}
	if (i.Sealed || i.SHA256 != "") && !sealed(text) {
		return nil, damaged(name, "the checksum of its index is wrong")
	}
	if i.Version != indexVersion {
		return nil, bothy.Errorf(bothy.CodeUnsupported, "the index of %s in the object storage has version %d, but this server reads version %d", name, i.Version, indexVersion).
			WithHint("Upgrade this server.")
	}
	seen := map[string]bool{}
	for _, d := range i.Folders {
		if err := checkName(d.Name, d.Mode, seen); err != nil {
			return nil, damaged(name, "its index %v", err)
		}
	}
	for _, f := range i.Files {
		if err := errors.Join(checkName(f.Name, f.Mode, seen), f.check()); err != nil {
			return nil, damaged(name, "its index %v", err)
		}
	}
	return &i, nil
}

func checkName(name string, mode fs.FileMode, seen map[string]bool) error {
	switch {
	case !filepath.IsLocal(name) || name == "." || filepath.Clean(name) != name || strings.ContainsAny(name, "\x00\\"):
		return fmt.Errorf("names %q", name)
	case seen[name]:
		return fmt.Errorf("names %s twice", name)
	case mode&^fs.ModePerm != 0:
		return fmt.Errorf("says that %s is not a regular file", name)
	}
	seen[name] = true
	return nil
}

func (f *file) check() error {
	if f.Size < 0 || f.Size > maxFileBytes {
		return fmt.Errorf("says that %s has %d bytes", f.Name, f.Size)
	}
	if f.Size <= inlineBytes {
		if int64(len(f.Data)) != f.Size || len(f.Chunks) > 0 {
			return fmt.Errorf("does not hold %s whole", f.Name)
		}
		return nil
	}
	at := int64(0)
	for _, c := range f.Chunks {
		sum, err := hex.DecodeString(c.SHA256)
		switch {
		case err != nil || len(sum) != 32 || strings.ToLower(c.SHA256) != c.SHA256:
			return fmt.Errorf("has no checksum of %s", f.Name)
		case c.Size < 1 || c.Size > chunkSize || c.At < at || c.At+c.Size > f.Size || (!f.Sparse && c.At != at):
			return fmt.Errorf("has %s in pieces that do not fit", f.Name)
		case c.Stored < 1 || c.Stored > c.Size || (!c.Zstd && c.Stored != c.Size):
			return fmt.Errorf("has %s in pieces of wrong sizes", f.Name)
		}
		at = c.At + c.Size
	}
	if !f.Sparse && at != f.Size {
		return fmt.Errorf("does not hold %s whole", f.Name)
	}
	return nil
}

// index reads the index of a tree, twice if it is damaged, which gets over errors of transmission.
// A missing one is fs.ErrNotExist.
func (b *Bucket) index(ctx context.Context, kind, name string) (i *index, text []byte, err error) {
	for range 2 {
		if text, err = b.get(ctx, b.key(kind, name, indexName), maxIndexBytes, 0); err != nil {
			return nil, nil, err
		}
		if i, err = decodeIndex(name, text); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
			break
		}
	}
	return i, text, err
}

func damaged(name, format string, args ...any) *bothy.Error {
	return bothy.Errorf(bothy.CodeSnapshotDamaged, "%s is damaged in the object storage: "+format, append([]any{name}, args...)...).
		WithHint("Nothing was started from it. Use another snapshot of the same sandbox, or restore the bucket from a backup.")
}

// Known returns a small file of each tree whose index is in a store's state folder.
func Known(state, name string) (map[string][]byte, error) {
	known := map[string][]byte{}
	entries, err := os.ReadDir(filepath.Join(state, indexes))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(state, indexes, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		i, err := decodeIndex(e.Name(), text)
		if err != nil {
			return nil, err
		}
		for _, f := range i.Files {
			if f.Name == name {
				known[e.Name()] = f.Data
			}
		}
	}
	return known, nil
}
