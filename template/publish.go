package template

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// publish moves a finished image into the library and points its name to it. The folder work
// contains the image and is empty afterwards. The order makes it crash-safe: sync, rename, then
// move the link.
func (l *Library) publish(ctx context.Context, t *store.Template, work string) error {
	image := filepath.Join(work, imageName)
	err := measure(t, image)
	if err != nil {
		return err
	}
	quota, err := l.quota(ctx)
	if err != nil {
		return err
	}
	if quota > 0 {
		// Of two that are published at the same time, the second finds the first.
		unlock, err := l.lock(ctx, quotaLock, func() {})
		if err != nil {
			return err
		}
		defer unlock()
		if err := l.checkQuota(quota, t.SizeBytes); err != nil {
			return err
		}
	}
	t.Project = l.project
	l.signOff(t)
	if err := writeManifest(work, t); err != nil {
		return err
	}
	hex := t.Digest[len(digestPrefix):]
	home := l.home(t.Name)
	final := filepath.Join(home, hex)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return fmt.Errorf("publish template: %w", err)
	}
	if err := moveVersion(work, final); err != nil {
		return fmt.Errorf("publish template: %w", err)
	}
	t.RootFS = filepath.Join(final, imageName)
	link := tagLink(cmp.Or(t.Tag, bothy.DefaultTag))
	// Tell the store first, so that a link it does not know is known to be new.
	told, err := l.recordLater(ctx, t, quota)
	var over *store.OverQuota
	switch {
	case errors.As(err, &over):
		return errors.Join(overQuota(over.Used, quota, t.SizeBytes), l.collect(ctx, t.Name))
	case told:
		err = l.point(t.Name, hex, link)
	default:
		err = relink(home, link, hex)
	}
	if err != nil {
		return fmt.Errorf("publish template: %w", err)
	}
	return nil
}

// moveVersion renames the image and its manifest into place. An existing version with the same
// digest may be damaged and is replaced; sandboxes that have it open keep theirs.
func moveVersion(work, final string) error {
	stage := filepath.Join(work, "version")
	if err := os.Mkdir(stage, 0o755); err != nil {
		return err
	}
	for _, name := range []string{imageName, manifestName} {
		if err := os.Rename(filepath.Join(work, name), filepath.Join(stage, name)); err != nil {
			return err
		}
	}
	if err := syncPath(stage); err != nil {
		return err
	}
	err := os.Rename(stage, final)
	if errors.Is(err, fs.ErrExist) {
		err = errors.Join(
			os.Rename(filepath.Join(stage, imageName), filepath.Join(final, imageName)),
			os.Rename(filepath.Join(stage, manifestName), filepath.Join(final, manifestName)))
	}
	if err != nil {
		return err
	}
	return errors.Join(syncPath(final), syncPath(filepath.Dir(final)))
}

// relink points home/current to a version atomically.
func relink(home, link, version string) error {
	tmp := filepath.Join(home, ".link")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(version, tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(home, link)); err != nil {
		return err
	}
	return errors.Join(syncPath(home), syncPath(filepath.Dir(home)))
}

// measure fills in the digest and size of an image if missing, and syncs it to disk.
func measure(t *store.Template, image string) error {
	f, err := os.Open(image)
	if err != nil {
		return fmt.Errorf("measure image: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && t.Digest != "" && info.Size() == t.SizeBytes {
		return f.Sync()
	}
	h := sha256.New()
	if t.SizeBytes, err = io.Copy(h, f); err != nil {
		return fmt.Errorf("measure image: %w", err)
	}
	t.Digest = digestPrefix + hex.EncodeToString(h.Sum(nil))
	if err := f.Sync(); err != nil {
		return fmt.Errorf("measure image: %w", err)
	}
	return nil
}

func writeManifest(dir string, t *store.Template) error {
	data, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	path := filepath.Join(dir, manifestName)
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return syncPath(path)
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
