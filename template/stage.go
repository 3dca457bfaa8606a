package template

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// stageLife is how long a base is reused. Its packages are as old as it is, so this limits the
// delay of security updates in new templates.
const stageLife = 24 * time.Hour

// stagePath is where the base with these settings is cached: a tar of the root file system
// after the step debian.
func (b *build) stagePath(d *debianBase) (string, error) {
	settings, err := json.Marshal([]any{d, aptConf, dpkgConf, localeArchive, stamp})
	if err != nil {
		return "", err
	}
	return filepath.Join(b.lib.dir, ".cache", "bases", fmt.Sprintf("%s-%.16x.tar", d.Suite, sha256.Sum256(settings))), nil
}

// fromStage unpacks a cached base, if there is a recent one.
func (b *build) fromStage(ctx context.Context, path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(info.ModTime()) > stageLife {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	b.say("using the base that was made at %s", info.ModTime().UTC().Format(time.RFC3339))
	return true, b.command(ctx, nil, "tar", "--extract", "--preserve-permissions", "--numeric-owner", "--file", path, "--directory", b.root.dir)
}

// keepStage caches the base for other templates. It is renamed into place, so that it appears
// atomically.
func (b *build) keepStage(ctx context.Context, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(b.work, "base.tar")
	if err := b.command(ctx, nil, "tar", "--create", "--numeric-owner", "--file", tmp, "--directory", b.root.dir, "."); err != nil {
		return err
	}
	if err := errors.Join(syncPath(tmp), os.Rename(tmp, path)); err != nil {
		return err
	}
	return dropOldStages(filepath.Dir(path))
}

// dropOldStages deletes expired bases.
func dropOldStages(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > stageLife {
			err = os.Remove(filepath.Join(dir, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
