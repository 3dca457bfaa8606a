package server

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/vault"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/store/sqlite"
)

// What one host fetches would be lost to the others.
func TestAHostOfAClusterDoesNotLeaveTheObjectStorage(t *testing.T) {
	c := config.Config{Home: t.TempDir(), Blobs: "s3://bothy", Cluster: config.Cluster{Name: "one"}}
	if _, err := MigrateBlobs(t.Context(), c, "host", Options{}); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("it is allowed: %v", err)
	}
	c.Cluster.Name = ""
	if _, err := MigrateBlobs(t.Context(), c, "host", Options{}); bothy.ErrorCode(err) != bothy.CodeFileNotFound {
		t.Errorf("a server without state: %v", err)
	}
}

// homeWith makes the home of a server that does not run, with records of snapshots that are in the
// object storage. Those that are also on this host have a file.
func homeWith(t *testing.T, blobs string, here map[string]bool) config.Config {
	t.Helper()
	c := config.Default()
	c.Home, c.Blobs = t.TempDir(), blobs
	if _, err := vault.Open(filepath.Join(c.Home, "secrets.key")); err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(c.Home, "bothy.db"))
	if err != nil {
		t.Fatal(err)
	}
	for id, local := range here {
		n := &bothy.Snapshot{ID: id, ProjectID: "p", SandboxID: "sbx", CreatedAt: time.Now().UTC(), Durable: bothy.DurableStore}
		err := db.PutSnapshot(t.Context(), n)
		if dir := filepath.Join(c.Home, "snapshots", id); err == nil && local {
			err = errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return c
}

// durable is how far each snapshot is, by the records of a home.
func durable(t *testing.T, c config.Config) map[string]bothy.Durable {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(c.Home, "bothy.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all, err := db.AllSnapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bothy.Durable{}
	for _, n := range all {
		got[n.ID] = n.Durable
	}
	return got
}

// A place that the records do not name is refused, until it is adopted.
func TestAPlaceIsAdopted(t *testing.T) {
	objects := s3test.Start(t)
	o := Options{Log: slog.New(slog.DiscardHandler)}
	c := homeWith(t, objects.Bucket(t, "empty"), map[string]bool{"snphere": true, "snplost": false})
	if _, err := MigrateBlobs(t.Context(), c, "host", o); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("an empty bucket, where snapshots should be: %v", err)
	}
	a, err := AdoptBlobs(t.Context(), c, o)
	if err != nil || a.Snapshots != 2 || a.Stored != 0 || !slices.Equal(a.Lost, []string{"snplost"}) {
		t.Fatalf("adopted: %+v, %v", a, err)
	}
	if got := durable(t, c); got["snphere"] != bothy.DurableHost || got["snplost"] != bothy.DurableHost {
		t.Errorf("the records say %v of snapshots that are not in the storage", got)
	}
	// It is this database's, and not another's with the same key.
	other := homeWith(t, c.Blobs, nil)
	key, err := os.ReadFile(filepath.Join(c.Home, "secrets.key"))
	if err == nil {
		err = os.WriteFile(filepath.Join(other.Home, "secrets.key"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MigrateBlobs(t.Context(), other, "host", o); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("another database's bucket: %v", err)
	}
	if _, err := AdoptBlobs(t.Context(), other, o); err != nil {
		t.Errorf("another database's bucket cannot be adopted: %v", err)
	}
	// A home that fetches everything may then use another place.
	if _, err := MigrateBlobs(t.Context(), other, "host", o); err != nil {
		t.Errorf("once it is adopted: %v", err)
	}
	other.Blobs = objects.Bucket(t, "next")
	s := &Server{config: other, log: o.Log}
	defer s.Close()
	if err := s.openStore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.vault, err = vault.Open(filepath.Join(other.Home, "secrets.key")); err != nil {
		t.Fatal(err)
	}
	b, err := openBucket(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Claim(t.Context(), s.bucketClaim(false)); err != nil {
		t.Errorf("the next place: %v", err)
	}
	var said strings.Builder
	s.log = slog.New(slog.NewTextHandler(&said, nil))
	if s.warnOfUnusedStorage(t.Context()); !strings.Contains(said.String(), "blobs is not set") {
		t.Errorf("a server without the setting says %q", said.String())
	}
}
