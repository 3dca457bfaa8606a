package template

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/template/apart"
	filetree "github.com/bothy-dev/bothy/template/tree"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// maxImageBytes limits the total size of an image's files, so that a small
// archive cannot fill the disk.
const maxImageBytes = 64 << 30

// Whiteouts are names in a layer that delete what lower layers have.
const (
	whiteout       = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
)

// unpackLayer applies one layer of an image, and fails if its digest is wrong.
func (r *rootfs) unpackLayer(ctx context.Context, l v1.Layer, budget *int64, guard io.Writer) error {
	want, err := l.DiffID()
	if err != nil {
		return err
	}
	compressed, err := l.Compressed()
	if err != nil {
		return err
	}
	defer compressed.Close()
	content, err := apart.Decompress(ctx, compressed, maxImageBytes)
	if err != nil {
		return err
	}
	defer content.Close()
	hash := sha256.New()
	all := io.TeeReader(content, io.MultiWriter(guard, hash))
	if err := r.unpackTar(ctx, all, budget); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, all); err != nil { // whatever follows the tar's end
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want.Hex {
		return fmt.Errorf("its content has the digest %s, not %s", got, want.Hex)
	}
	return nil
}

// unpackTar applies the entries of a layer in order.
func (r *rootfs) unpackTar(ctx context.Context, content io.Reader, budget *int64) error {
	own := map[string]bool{} // created by this layer
	return bounded.Tar(ctx, content, filetree.MaxFiles, func(h *tar.Header, content io.Reader) error {
		if *budget -= h.Size; *budget < 0 {
			return fmt.Errorf("the image contains more than %d GB", int64(maxImageBytes)>>30)
		}
		return r.apply(h, content, own)
	})
}

func (r *rootfs) apply(h *tar.Header, content io.Reader, own map[string]bool) error {
	base := path.Base(h.Name)
	switch {
	case base == opaqueWhiteout:
		return r.hideBelow(path.Dir(h.Name), own)
	case strings.HasPrefix(base, whiteout):
		return r.remove(path.Join(path.Dir(h.Name), strings.TrimPrefix(base, whiteout)))
	}
	at, err := r.parent(h.Name)
	if err != nil {
		return err
	}
	if at == "." { // skip the root: its owner and mode are fixed
		return nil
	}
	for p := at; p != "." && !own[p]; p = path.Dir(p) {
		own[p] = true
	}
	if err := r.makeWay(at, h); err != nil {
		return err
	}
	made, err := r.create(at, h, content)
	if err != nil || !made {
		return err
	}
	return r.dress(at, h)
}

// hideBelow deletes what lower layers have put into a folder.
func (r *rootfs) hideBelow(dir string, own map[string]bool) error {
	entries, err := r.list(dir)
	if err != nil {
		return err
	}
	at, err := r.resolve(dir, true)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if p := path.Join(at, e.Name()); !own[p] {
			if err := r.root.RemoveAll(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeWay deletes what an entry replaces, except a folder that is replaced by a
// folder.
func (r *rootfs) makeWay(at string, h *tar.Header) error {
	info, err := r.root.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.IsDir() && h.Typeflag == tar.TypeDir {
		return err
	}
	return r.root.RemoveAll(at)
}

// create creates the file of an entry, and reports whether the entry has its own owner and
// mode. Devices and pipes are skipped: a sandbox has its own.
func (r *rootfs) create(at string, h *tar.Header, content io.Reader) (bool, error) {
	switch h.Typeflag {
	case tar.TypeReg:
		return true, r.copyIn(at, content, 0o600)
	case tar.TypeDir:
		return true, r.makeAll(at)
	case tar.TypeSymlink:
		return true, r.root.Symlink(h.Linkname, at)
	case tar.TypeLink:
		target, err := r.resolve(h.Linkname, false)
		if err != nil {
			return false, err
		}
		return false, r.root.Link(target, at)
	}
	return false, nil
}

// dress sets a file's owner and then its mode, because a change of owner clears the set-user-id
// bit.
func (r *rootfs) dress(at string, h *tar.Header) error {
	if err := r.root.Lchown(at, h.Uid, h.Gid); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeSymlink {
		return nil
	}
	return r.root.Chmod(at, h.FileInfo().Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
}
