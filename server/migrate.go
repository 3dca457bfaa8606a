package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
	"github.com/bothy-dev/bothy/store/sqlite"
	"github.com/bothy-dev/bothy/store/transfer"
)

// StoreFiles stands for the SQLite files in the home, where databases have URLs.
const StoreFiles = "sqlite"

// Migration is the result of Migrate.
type Migration struct {
	Tables []transfer.Moved `json:"tables"`
	// Kept is the new path of the source files, if the records came from files.
	Kept string `json:"kept,omitempty"`
}

// Migrate copies the records of a home's server from its files to a PostgreSQL database, or
// back: all of them or none. The server must not be running, and the target must be empty. The
// source keeps its records.
func Migrate(ctx context.Context, c config.Config, from, to string, o Options) (*Migration, error) {
	isURL := func(s string) bool {
		return strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://")
	}
	var url string
	switch {
	case from == StoreFiles && isURL(to):
		url = to
	case to == StoreFiles && isURL(from):
		url = from
	default:
		return nil, bothy.Errorf(bothy.CodeInvalid, "records can be migrated from %s to a PostgreSQL database, or back", StoreFiles).
			WithHint("Give --from %s --to postgres://USER@HOST/DATABASE, or the other way round.", StoreFiles)
	}
	if _, err := os.Stat(c.Home); err != nil {
		return nil, bothy.Errorf(bothy.CodeFileNotFound, "there is no state in %s", c.Home).WithHint("Set BOTHY_HOME, or name the settings with --config.")
	}
	s := &Server{config: c, version: o.Version, log: o.Log}
	defer s.Close()
	if err := s.openHome(); err != nil {
		return nil, err
	}
	files := filepath.Join(c.Home, "bothy.db")
	_, err := os.Stat(files)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	there := err == nil
	if from == StoreFiles && !there {
		return nil, bothy.Errorf(bothy.CodeFileNotFound, "there are no records in %s", c.Home).WithHint("Set BOTHY_HOME, or name the settings with --config.")
	}
	id, err := homeID(c.Home)
	if err != nil {
		return nil, err
	}
	opts := []postgres.Option{postgres.WithLog(s.log), postgres.WithHome(id), postgres.WithHolder(holder(c.Home, id))}
	if to == StoreFiles {
		opts = append(opts, postgres.WithClusterLeft())
	}
	db, err := postgres.Open(ctx, url, opts...)
	if err != nil {
		return nil, err
	}
	s.undo.Add(func() { db.Close() })
	if from == StoreFiles {
		return toDatabase(ctx, files, db)
	}
	return toFiles(ctx, files, there, db)
}

// moved is how the files with the records are called after a migration to a database, followed by
// when it was.
const moved = ".moved-"

// checkNotMigrated returns an error if the records are in a database since they were migrated. A
// server that is started with the files would have none.
func checkNotMigrated(files string) error {
	if _, err := os.Stat(files); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	kept, err := filepath.Glob(files + moved + "*")
	if err != nil || len(kept) == 0 {
		return err
	}
	last := slices.Max(kept)
	return bothy.Errorf(bothy.CodeConflict, "the records were migrated to a database, and store is not set").
		WithHint("Set store to the URL of the database, or migrate the records back with `bothy migrate --from URL --to %s`. To start without them, move %s elsewhere.", StoreFiles, last)
}

// toDatabase renames the files at the end, so that no server starts with them by mistake.
func toDatabase(ctx context.Context, files string, db *postgres.Store) (*Migration, error) {
	if err := mustBeEmpty(ctx, db, "the database"); err != nil {
		return nil, err
	}
	source, err := sqlite.Open(ctx, files)
	if err != nil {
		return nil, err
	}
	var m Migration
	err = db.Load(ctx, func(target store.Rows) (err error) {
		m.Tables, err = transfer.Rows(ctx, source, target)
		return err
	})
	if err = errors.Join(err, source.Close()); err != nil {
		return nil, err
	}
	m.Kept = files + moved + time.Now().UTC().Format("20060102T150405")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(files+suffix, m.Kept+suffix); err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("the records are in the database, but %s could not be renamed: %w", files+suffix, err)
		}
	}
	return &m, nil
}

// toFiles writes to temporary files, and renames them once they are complete.
func toFiles(ctx context.Context, files string, there bool, db *postgres.Store) (*Migration, error) {
	if there {
		old, err := sqlite.Open(ctx, files)
		if err != nil {
			return nil, err
		}
		err = mustBeEmpty(ctx, old, files)
		if err = errors.Join(err, old.Close()); err != nil {
			return nil, err
		}
	}
	home := filepath.Dir(files)
	removeDrafts := func() {
		drafts, _ := filepath.Glob(filepath.Join(home, "moving*"))
		for _, d := range drafts {
			_ = os.Remove(d)
		}
	}
	removeDrafts()
	defer removeDrafts()
	draft := filepath.Join(home, "moving.db")
	target, err := sqlite.Open(ctx, draft)
	if err != nil {
		return nil, err
	}
	var m Migration
	m.Tables, err = transfer.Rows(ctx, db, target)
	// Closing checkpoints the write-ahead log into the file.
	if err = errors.Join(err, target.Close()); err != nil {
		return nil, err
	}
	for _, suffix := range []string{"-answers.db", ".db"} {
		if err := os.Rename(filepath.Join(home, "moving"+suffix), filepath.Join(home, "bothy"+suffix)); err != nil {
			return nil, err
		}
	}
	return &m, nil
}

func mustBeEmpty(ctx context.Context, s store.RowReader, name string) error {
	empty, err := transfer.Empty(ctx, s)
	if err == nil && !empty {
		err = bothy.Errorf(bothy.CodeConflict, "%s already contains records", name).
			WithHint("Give an empty target. Existing records are never overwritten.")
	}
	return err
}
