package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	filetree "github.com/bothy-dev/bothy/template/tree"
)

// Adopt makes an image a template under t's name, and fills in its digest and size if missing.
// The image also stays where it is, as the same file if it is on the library's disk.
func (l *Library) Adopt(ctx context.Context, t *store.Template, image string) error {
	ref, err := bothy.ParseTemplateRef(t.Name)
	if err != nil || ref.Digest != "" {
		return invalidName(t.Name)
	}
	t.Name, t.Tag = ref.Name, tagOf(tagLink(ref.Tag))
	if c := bothy.CallerFrom(ctx); c != nil {
		l = l.of(c.ProjectID)
	}
	unlock, err := l.lock(ctx, t.Name, func() {})
	if err != nil {
		return err
	}
	defer unlock()
	work := l.workFolder(t.Name)
	if err := removeTree(work); err != nil {
		return fmt.Errorf("delete the rest of an earlier build: %w", err)
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return fmt.Errorf("create a folder to build in: %w", err)
	}
	defer removeTree(work)
	if err := linkOrCopy(image, filepath.Join(work, imageName)); err != nil {
		return err
	}
	if err := l.publish(ctx, t, work); err != nil {
		return err
	}
	l.dropOld(ctx, t)
	return nil
}

func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// CacheDir is a folder on the library's disk for the cache of builds.
func (l *Library) CacheDir() string { return filepath.Join(l.dir, ".cache", "build") }

// Finish is FinishTree, for builds.
func (l *Library) Finish(t *filetree.Tree, searchPath string) error { return FinishTree(t, searchPath) }

// WriteTree writes a tree as the image of a template, and returns its digest and size.
func (l *Library) WriteTree(t *filetree.Tree, image string) (digest string, size int64, err error) {
	if err := roomFor(filepath.Dir(image), t.Bytes(), l.opts.MinFreeDisk); err != nil {
		return "", 0, err
	}
	sum := sha256.New()
	if err := t.Write(image, filetree.WriteOptions{Time: stamp, Xattrs: keepAttributes, Drop: cannotRun, Sum: sum}); err != nil {
		return "", 0, err
	}
	info, err := os.Stat(image)
	if err != nil {
		return "", 0, err
	}
	return digestPrefix + hex.EncodeToString(sum.Sum(nil)), info.Size(), nil
}
