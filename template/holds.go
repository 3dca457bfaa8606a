package template

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/internal/wholefile"
)

const (
	holdsName = ".holds"
	ownerName = "home"
	// holdFresh is how long a hold is not rewritten, and holdLife how long one stays for a
	// sandbox that is being created.
	holdFresh = 10 * time.Minute
	holdLife  = time.Hour
)

// holds record which images servers need. Servers may share a templates folder, but none can
// query another's store. Each has its own folder there, with a file for each image.
type holds struct {
	dir  string
	home string // this server's home; "" disables holds
	now  func() time.Time

	mu    sync.Mutex
	fresh map[string]time.Time
}

func newHolds(library, home string) *holds {
	return &holds{dir: filepath.Join(library, holdsName), home: home, now: time.Now, fresh: map[string]time.Time{}}
}

// own is this server's folder.
func (h *holds) own() string {
	sum := sha256.Sum256([]byte(h.home))
	return filepath.Join(h.dir, hex.EncodeToString(sum[:8]))
}

// add holds an image before anything is made from it.
func (h *holds) add(image string) error {
	if h.home == "" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if at, ok := h.fresh[image]; ok && now.Sub(at) < holdFresh {
		return nil
	}
	err := h.write(image, now)
	for _, cannot := range []error{fs.ErrPermission, unix.EROFS, unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, cannot) {
			return nil // do not prevent the start of sandboxes
		}
	}
	if err == nil {
		h.fresh[image] = now
	}
	return err
}

func (h *holds) write(image string, now time.Time) error {
	dir := h.own()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if home, err := os.ReadFile(filepath.Join(dir, ownerName)); err != nil || string(home) != h.home {
		// Other servers may read it at any time, and treat a missing name as a deleted home.
		if err := wholefile.Write(filepath.Join(dir, ownerName), []byte(h.home), 0o644); err != nil {
			return err
		}
	}
	path := filepath.Join(dir, image)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Chtimes(path, now, now))
}

// holder returns the home of another server that holds an image, or that server's folder if its
// home is unknown, or "". A server whose home is gone needs nothing.
func (h *holds) holder(image string) string {
	servers, _ := os.ReadDir(h.dir)
	for _, s := range servers {
		dir := filepath.Join(h.dir, s.Name())
		if dir == h.own() {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, image)); err != nil {
			continue
		}
		if home, gone := signature(dir); !gone {
			return cmp.Or(home, dir)
		}
	}
	return ""
}

// signature is the home of the server that owns a folder, and whether it is gone.
func signature(dir string) (home string, gone bool) {
	b, err := os.ReadFile(filepath.Join(dir, ownerName))
	if err != nil || len(b) == 0 {
		return "", false
	}
	_, err = os.Stat(string(b))
	return string(b), errors.Is(err, fs.ErrNotExist)
}

// sweep releases what this server no longer needs, and deletes the folders of servers whose
// homes are gone.
func (h *holds) sweep(ctx context.Context, needed func(image string) (bool, error)) error {
	var errs []error
	servers, _ := os.ReadDir(h.dir)
	for _, s := range servers {
		dir := filepath.Join(h.dir, s.Name())
		if _, gone := signature(dir); gone {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	if h.home == "" {
		return errors.Join(errs...)
	}
	images, _ := os.ReadDir(h.own())
	for _, i := range images {
		info, err := i.Info()
		if err != nil || i.Name() == ownerName || h.now().Sub(info.ModTime()) < holdLife {
			continue
		}
		if used, err := needed(i.Name()); err != nil || used || ctx.Err() != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, h.drop(i.Name()))
	}
	return errors.Join(errs...)
}

// drop releases an image, unless it was held again meanwhile.
func (h *holds) drop(image string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at, ok := h.fresh[image]; ok && h.now().Sub(at) < holdLife {
		return nil
	}
	delete(h.fresh, image)
	err := os.Remove(filepath.Join(h.own(), image))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// digestOf is an image's digest without its prefix.
func digestOf(digest string) string { return strings.TrimPrefix(digest, digestPrefix) }
