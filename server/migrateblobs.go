package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/vault"
	"github.com/bothy-dev/bothy/blob/s3"
	"github.com/bothy-dev/bothy/config"
)

// BlobMigration is the result of MigrateBlobs.
type BlobMigration struct {
	Snapshots int `json:"snapshots"`
	Fetched   int `json:"fetched"`
}

// MigrateBlobs fetches all snapshots of a home from the object storage to this host. The server
// must not be running. The objects stay in the storage.
func MigrateBlobs(ctx context.Context, c config.Config, to string, o Options) (*BlobMigration, error) {
	switch {
	case to != string(bothy.DurableHost):
		return nil, bothy.Errorf(bothy.CodeInvalid, "--blobs-to is %q", to).
			WithHint("Give host. To copy snapshots to object storage, start the server with the setting blobs.")
	case c.Blobs == "":
		return nil, bothy.Errorf(bothy.CodeInvalid, "the setting blobs names no object storage").
			WithHint("Name the settings with --config, or set BOTHY_BLOBS.")
	case c.Cluster.On():
		return nil, bothy.Errorf(bothy.CodeConflict, "the object storage is shared by all hosts of the cluster, and one host cannot take the others' snapshots").
			WithHint("Leave blobs set. To move to another bucket, stop all hosts, and copy everything in this one, including bothy.json, with the storage's own tools.")
	}
	m := &BlobMigration{}
	err := withBlobs(ctx, c, o, s3.Claim{Used: true}, func(s *Server, blobs *s3.Store) error {
		return s.fetchAll(ctx, blobs, m)
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// withBlobs opens the object storage of a home whose server is not running, and calls do with
// it.
func withBlobs(ctx context.Context, c config.Config, o Options, claim s3.Claim, do func(*Server, *s3.Store) error) error {
	if _, err := os.Stat(filepath.Join(c.Home, "secrets.key")); err != nil {
		return bothy.Errorf(bothy.CodeFileNotFound, "there is no state in %s", c.Home).WithHint("Set BOTHY_HOME, or name the settings with --config.")
	}
	s := &Server{config: c, version: o.Version, log: o.Log}
	defer s.Close()
	if err := s.openHome(); err != nil {
		return err
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	var err error
	if s.vault, err = vault.Open(filepath.Join(c.Home, "secrets.key")); err != nil {
		return err
	}
	bucket, err := openBucket(c)
	if err != nil {
		return err
	}
	claim.Owner = bucketOwner(s.vault)
	claim.Places = places{s.store}
	if claim.Adopt {
		claim.Places = adopted{places{s.store}}
	}
	// Unlike at a server's start, storage that cannot be reached is an error here.
	if err := bucket.Claim(ctx, claim); err != nil {
		return err
	}
	blobs, err := s3.Open(filepath.Join(c.Home, "snapshots"), bucket, s3.Options{
		Kind: snapshotKind, State: objectState(c.Home), MinFree: c.Snapshots.MinFreeDiskMB << 20, KeepAll: true, Log: s.log,
	})
	if err != nil {
		return err
	}
	defer blobs.Close()
	if err := blobs.Settle(); err != nil {
		return err
	}
	return do(s, blobs)
}

// adopted lets a claim replace the place in the records with its own.
type adopted struct{ places }

func (a adopted) UsePlace(ctx context.Context, p s3.Place) (s3.Place, error) {
	if err := a.store.ForgetPlaces(ctx); err != nil {
		return p, err
	}
	return a.places.UsePlace(ctx, p)
}

// BlobAdoption is the result of AdoptBlobs.
type BlobAdoption struct {
	// Location is the place that the server uses from now on.
	Location string `json:"location"`
	// Snapshots is the number of snapshots in the records; Stored of them are in the object
	// storage.
	Snapshots int `json:"snapshots"`
	Stored    int `json:"stored"`
	// Lost are the snapshots that the records place in the object storage, but that are neither
	// there nor on this host.
	Lost []string `json:"lost,omitempty"`
}

// AdoptBlobs makes the place in the setting blobs, with its contents, the one that a home's
// server uses, replacing the one in its records. No server of the database may be running.
func AdoptBlobs(ctx context.Context, c config.Config, o Options) (*BlobAdoption, error) {
	if c.Blobs == "" {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the setting blobs names no object storage").
			WithHint("Name the settings with --config, or set BOTHY_BLOBS.")
	}
	a := &BlobAdoption{}
	err := withBlobs(ctx, c, o, s3.Claim{Adopt: true}, func(s *Server, blobs *s3.Store) error {
		return s.compareStored(ctx, blobs, a)
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// compareStored updates the records of which snapshots are in the object storage.
func (s *Server) compareStored(ctx context.Context, blobs *s3.Store, a *BlobAdoption) error {
	l, err := s3.ParseLocation(s.config.Blobs)
	if err != nil {
		return err
	}
	all, err := s.store.AllSnapshots(ctx)
	if err != nil {
		return err
	}
	a.Location, a.Snapshots = l.String(), len(all)
	for _, n := range all {
		has, err := blobs.Has(ctx, n.ID)
		if err != nil {
			return err
		}
		was := n.Durable
		n.Durable = bothy.DurableHost
		if has {
			n.Durable = bothy.DurableStore
			a.Stored++
		} else if was == bothy.DurableStore && !blobs.Local(n.ID) {
			a.Lost = append(a.Lost, n.ID)
		}
		if n.Durable != was {
			if _, _, err := s.store.SetSnapshotDurable(ctx, n.ID, n.Durable); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetchAll changes no record until all files are on this host.
func (s *Server) fetchAll(ctx context.Context, blobs *s3.Store, m *BlobMigration) error {
	all, err := s.store.AllSnapshots(ctx)
	if err != nil {
		return err
	}
	m.Snapshots = len(all)
	for _, n := range all {
		if n.Durable != bothy.DurableStore || blobs.Local(n.ID) {
			continue
		}
		_, release, err := blobs.Open(ctx, n.ID)
		if err != nil {
			return fmt.Errorf("fetch snapshot %s, after %d others: %w", n.ID, m.Fetched, err)
		}
		release()
		m.Fetched++
	}
	for _, n := range all {
		if n.Durable == bothy.DurableStore {
			n.Durable = bothy.DurableHost
			if err := s.store.PutSnapshot(ctx, n); err != nil {
				return err
			}
		}
	}
	// What is cached about this storage is not true of any other.
	if err := s.store.ForgetPlaces(ctx); err != nil {
		return err
	}
	return os.RemoveAll(objectState(s.config.Home))
}
