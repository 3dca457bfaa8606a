package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/vault"
)

// BlobMigration is what MigrateBlobs has done.
type BlobMigration struct {
	Snapshots int `json:"snapshots"`
	Fetched   int `json:"fetched"`
}

// MigrateBlobs fetches all snapshots of a home from the object storage to this host. The
// server must not run. What is in the storage stays there.
func MigrateBlobs(ctx context.Context, c config.Config, to string, o Options) (*BlobMigration, error) {
	switch {
	case to != string(bothy.DurableHost):
		return nil, bothy.Errorf(bothy.CodeInvalid, "--blobs-to is %q", to).
			WithHint("Give host. To carry snapshots to object storage, start the server with the setting blobs.")
	case c.Blobs == "":
		return nil, bothy.Errorf(bothy.CodeInvalid, "the setting blobs names no object storage").
			WithHint("Name the settings with --config, or set BOTHY_BLOBS.")
	case c.Cluster.On():
		return nil, bothy.Errorf(bothy.CodeConflict, "the object storage is that of all hosts of the cluster, and one host cannot take the snapshots of the others").
			WithHint("Leave blobs set. To go to another bucket, stop all hosts, and copy everything in this one with the tools of the storage.")
	}
	if _, err := os.Stat(filepath.Join(c.Home, "secrets.key")); err != nil {
		return nil, bothy.Errorf(bothy.CodeFileNotFound, "there is no state in %s", c.Home).WithHint("Set BOTHY_HOME, or name the settings with --config.")
	}
	s := &Server{config: c, version: o.Version, log: o.Log}
	defer s.Close()
	if err := s.openHome(); err != nil {
		return nil, err
	}
	if err := s.openStore(ctx); err != nil {
		return nil, err
	}
	var err error
	if s.vault, err = vault.Open(filepath.Join(c.Home, "secrets.key")); err != nil {
		return nil, err
	}
	bucket, err := openBucket(c)
	if err != nil {
		return nil, err
	}
	// Here one that is away is an error.
	if err := bucket.Claim(ctx, bucketOwner(s.vault), true); err != nil {
		return nil, err
	}
	blobs, err := s3.Open(filepath.Join(c.Home, "snapshots"), bucket, s3.Options{
		Kind: snapshotKind, State: objectState(c.Home), MinFree: c.Snapshots.MinFreeDiskMB << 20, KeepAll: true, Log: s.log,
	})
	if err != nil {
		return nil, err
	}
	defer blobs.Close()
	return s.fetchAll(ctx, blobs)
}

// fetchAll changes no record before all files are here.
func (s *Server) fetchAll(ctx context.Context, blobs *s3.Store) (*BlobMigration, error) {
	all, err := s.store.AllSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	m := &BlobMigration{Snapshots: len(all)}
	for _, n := range all {
		if n.Durable != bothy.DurableStore || blobs.Local(n.ID) {
			continue
		}
		_, release, err := blobs.Open(ctx, n.ID)
		if err != nil {
			return nil, fmt.Errorf("fetch snapshot %s, after %d others: %w", n.ID, m.Fetched, err)
		}
		release()
		m.Fetched++
	}
	for _, n := range all {
		if n.Durable == bothy.DurableStore {
			n.Durable = bothy.DurableHost
			if err := s.store.PutSnapshot(ctx, n); err != nil {
				return nil, err
			}
		}
	}
	// What is known of this storage is nothing that another one has.
	return m, os.RemoveAll(objectState(s.config.Home))
}
