// Package embedded contains the other programs that bothy needs: the guest agent, as the image
// that is mounted into every sandbox, the sentry, and the first program of virtual machines.
// `make build` puts them into the folder bin before it compiles bothy, so that bothy is one
// file. Only server uses this package.
package embedded

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/klauspost/compress/zstd"
)

//go:embed all:bin
var files embed.FS

// Index is the file bin/index.json, which lists the folder's content.
type Index struct {
	Guest  Part `json:"guest"`
	Sentry Part `json:"sentry"`
	Vminit Part `json:"vminit"`
}

// Part describes one packed file in its unpacked form.
type Part struct {
	Digest string `json:"digest"` // SHA-256 in hex
	Size   int64  `json:"size"`
}

// Paths are the paths of the parts after Extract.
type Paths struct {
	// GuestImage is an EROFS image with the one file guest.
	GuestImage string
	Sentry     string
	// GuestDigest and SentryDigest are the SHA-256 in hex that Extract has checked these two
	// against.
	GuestDigest, SentryDigest string
	// Vminit is the first program of virtual machines.
	Vminit string
}

// Extract writes the parts into dir, each under a name with its SHA-256, unless they exist; a
// part is either complete or missing. Older parts stay: package builds knows which are needed.
// Several processes may do this concurrently.
func Extract(dir string) (Paths, error) { return extract(files, dir) }

func extract(from fs.FS, dir string) (Paths, error) {
	index, err := readIndex(from)
	if err != nil {
		return Paths{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Paths{}, fmt.Errorf("extract the engine: %w", err)
	}
	p := Paths{
		GuestImage: filepath.Join(dir, fmt.Sprintf("guest-%s.erofs", index.Guest.Digest)),
		Sentry:     filepath.Join(dir, fmt.Sprintf("sentry-%s", index.Sentry.Digest)),
		Vminit:     filepath.Join(dir, fmt.Sprintf("vminit-%s", index.Vminit.Digest)),

		GuestDigest: index.Guest.Digest, SentryDigest: index.Sentry.Digest,
	}
	for _, x := range []struct {
		name, to string
		part     Part
		mode     fs.FileMode
	}{
		{"bin/guest.erofs.zst", p.GuestImage, index.Guest, 0o644},
		{"bin/sentry.zst", p.Sentry, index.Sentry, 0o755},
		{"bin/vminit.zst", p.Vminit, index.Vminit, 0o755},
	} {
		if err := put(from, x.name, x.to, x.part, x.mode); err != nil {
			return Paths{}, err
		}
	}
	return p, nil
}

// Parts lists what this program contains.
func Parts() (*Index, error) { return readIndex(files) }

func readIndex(from fs.FS) (*Index, error) {
	data, err := fs.ReadFile(from, "bin/index.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bothy.Errorf(bothy.CodeEngineMissing, "this bothy was built without its engine").
			WithHint("Run `make build`, and use bin/bothy.")
	}
	if err != nil {
		return nil, err
	}
	index := &Index{}
	if err := json.Unmarshal(data, index); err != nil {
		return nil, fmt.Errorf("read the embedded index: %w", err)
	}
	return index, nil
}

// put unpacks one part, unless it exists.
func put(from fs.FS, name, to string, part Part, mode fs.FileMode) error {
	if info, err := os.Stat(to); err == nil && info.Mode().Perm() == mode && digestOf(to) == part.Digest {
		return nil
	}
	packed, err := fs.ReadFile(from, name)
	if err != nil {
		return fmt.Errorf("extract the engine: %w", err)
	}
	if err := unpack(packed, to, part.Size, mode); err != nil {
		return fmt.Errorf("extract the engine to %s: %w", to, err)
	}
	return nil
}

// digestOf returns the SHA-256 of a file, or "".
func digestOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// piece is how much of a program is written at once, in bytes. The host stores large writes in
// large pages, and maps more of those at once into a process that starts.
const piece = 4 << 20

func unpack(packed []byte, to string, size int64, mode fs.FileMode) (err error) {
	z, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	defer z.Close()
	f, err := os.CreateTemp(filepath.Dir(to), ".extract-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriterSize(f, piece)
	n, err := z.WriteTo(w)
	if err = errors.Join(err, w.Flush()); err == nil && n != size {
		err = fmt.Errorf("it has %d bytes and not %d", n, size)
	}
	// Closed before the rename: a program that is open for writing cannot be executed.
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}
