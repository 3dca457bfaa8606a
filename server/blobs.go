package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/vault"
	blobdir "github.com/bothy-dev/bothy/blob/dir"
	"github.com/bothy-dev/bothy/blob/s3"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/depot"
	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/telemetry"
)

const (
	// snapshotKind is the part of the object storage for snapshots.
	snapshotKind = "snapshots"
	// claimTimeout is how long a start waits for the object storage.
	claimTimeout = 15 * time.Second
	// claimAgain is how often unreachable storage is retried.
	claimAgain = 10 * time.Second
	// checkEvery is how often storage that answers is checked to still belong to this server.
	checkEvery = time.Minute
)

// objectState is the folder with the server's index of the object storage.
func objectState(home string) string { return filepath.Join(home, "objects", snapshotKind) }

// openBlobs opens the storage for the files of snapshots.
func (s *Server) openBlobs(ctx context.Context) error {
	root := filepath.Join(s.config.Home, "snapshots")
	stored, err := s.storedSnapshots(ctx)
	if err != nil {
		return err
	}
	if s.config.Blobs == "" {
		if err := onlyHere(root, stored, s.config.Cluster.On()); err != nil {
			return err
		}
		s.warnOfUnusedStorage(ctx)
		s.blobs, err = blobdir.Open(root)
		return err
	}
	bucket, err := openBucket(s.config)
	if err != nil {
		return err
	}
	if p := bucket.Location.Ignored; p != "" {
		s.log.Warn("a parameter in the setting blobs has no effect any more: remove it", "parameter", p)
	}
	if err := s.claim(ctx, bucket, len(stored) > 0); err != nil {
		return err
	}
	background, stop := context.WithCancel(context.Background())
	blobs, err := s3.Open(root, bucket, s3.Options{
		Kind: snapshotKind, State: objectState(s.config.Home),
		CacheBytes: s.config.Snapshots.CacheMB << 20, MinFree: s.config.Snapshots.MinFreeDiskMB << 20,
		Grace: time.Duration(s.config.Snapshots.GraceHours) * time.Hour,
		Named: s.depot.Named, Doubtful: s.doubtful,
		Before: s.membership.StoreNeeds,
		OnKept: func(name string) { s.lifecycle.SnapshotStored(background, name) },
		Verify: depot.VerifySnapshot,
		Log:    s.log,
	})
	if err != nil {
		stop()
		return err
	}
	s.blobs, s.bucket = blobs, bucket
	s.undo.Add(func() { stop(); blobs.Close() })
	if bucket.Usable() == nil {
		if err := blobs.Settle(); err != nil {
			return err
		}
	}
	go blobs.RunCollector(background)
	go s.watchBucket(background, blobs, len(stored) > 0)
	return nil
}

// objectStorage returns the metrics of the object storage.
func (s *Server) objectStorage() telemetry.ObjectStorage {
	o := telemetry.ObjectStorage{Available: s.bucket.Answers() && s.bucket.Usable() == nil}
	if blobs, ok := s.blobs.(*s3.Store); ok {
		o.Kinds = append(o.Kinds, objectKind(snapshotKind, blobs.Reading()))
	}
	return o
}

func objectKind(kind string, r s3.Reading) telemetry.ObjectKind {
	return telemetry.ObjectKind{
		Kind: kind, Pending: r.Pending, Oldest: r.Oldest.Seconds(),
		Uploads: r.Uploads, UploadFailures: r.UploadFailures, UploadBytes: r.UploadBytes,
		Fetches: r.Fetches, FetchFailures: r.FetchFailures, FetchBytes: r.FetchBytes,
	}
}

// warnOfUnusedStorage logs that the records name object storage, which this server does not use.
func (s *Server) warnOfUnusedStorage(ctx context.Context) {
	all, err := s.store.Places(ctx)
	if err != nil {
		s.log.Warn("cannot read the places of object storage", "error", err)
		return
	}
	for _, p := range all {
		if p.Used {
			s.log.Warn("snapshots of this server are not uploaded, and those of others are not found: blobs is not set, and the records name object storage; set it as on the other hosts, or stop using it with `bothy migrate --blobs-to host`", "used", p.Location)
		}
	}
}

func openBucket(c config.Config) (*s3.Bucket, error) {
	l, err := s3.ParseLocation(c.Blobs)
	if err != nil {
		return nil, err
	}
	return s3.OpenBucket(l)
}

// claim makes sure that the bucket belongs to this server. A bucket that cannot be reached is
// no error: snapshots are safe on the host's disk, and are uploaded later.
func (s *Server) claim(ctx context.Context, b *s3.Bucket, used bool) error {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	err := b.Claim(ctx, s.bucketClaim(used))
	if errors.Is(err, s3.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("cannot reach the object storage; snapshots stay on this host's disk until it answers", "blobs", b.Location.String(), "error", err)
		return nil
	}
	return err
}

// watchBucket claims storage that could not be claimed yet, and checks regularly that it still
// belongs to this server.
func (s *Server) watchBucket(ctx context.Context, blobs *s3.Store, used bool) {
	told := ""
	for {
		wait := claimAgain
		if s.bucket.Usable() == nil && s.bucket.Answers() {
			wait = checkEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		tctx, cancel := context.WithTimeout(ctx, claimTimeout)
		if s.bucket.Usable() == nil {
			silent := !s.bucket.Answers()
			err := s.bucket.Check(tctx)
			cancel()
			if s.logBucketProblem(&told, err); err == nil && silent {
				blobs.Retry()
			}
			continue
		}
		err := s.bucket.Claim(tctx, s.bucketClaim(used))
		cancel()
		if err == nil {
			err = blobs.Settle()
		}
		if s.logBucketProblem(&told, err); err == nil {
			s.log.Info("the object storage is available", "blobs", s.bucket.Location.String())
			blobs.Retry()
		}
	}
}

// logBucketProblem logs each distinct error of the storage once.
func (s *Server) logBucketProblem(told *string, err error) {
	switch {
	case err == nil:
		*told = ""
	case errors.Is(err, s3.ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
	case err.Error() != *told:
		*told = err.Error()
		s.log.Error("cannot use the object storage; snapshots stay on this host's disk", "blobs", s.bucket.Location.String(), "error", err)
	}
}

// bucketClaim returns this server's claim on the object storage. used says that the records
// mention objects in it.
func (s *Server) bucketClaim(used bool) s3.Claim {
	return s3.Claim{Owner: bucketOwner(s.vault), Places: places{s.store}, Used: used}
}

// places adapts the store to the records of places that s3 needs.
type places struct{ store database }

func (p places) Places(ctx context.Context) (all []s3.Place, err error) {
	known, err := p.store.Places(ctx)
	for _, k := range known {
		all = append(all, s3.Place(k))
	}
	return all, err
}

func (p places) AddPlace(ctx context.Context, n s3.Place) error {
	return p.store.AddPlace(ctx, store.Place(n))
}

func (p places) UsePlace(ctx context.Context, n s3.Place) (s3.Place, error) {
	used, err := p.store.UsePlace(ctx, store.Place(n))
	return s3.Place(used), err
}

// bucketOwner identifies the servers that can read each other's snapshots: those with the same
// secrets.key.
func bucketOwner(v *vault.Vault) string {
	return hex.EncodeToString(v.Derive("owner of object storage")[:16])
}

// storedSnapshots returns the snapshots that the records place in the object storage.
func (s *Server) storedSnapshots(ctx context.Context) (stored []string, err error) {
	all, err := s.store.AllSnapshots(ctx)
	for _, n := range all {
		if n.Durable == bothy.DurableStore {
			stored = append(stored, n.ID)
		}
	}
	return stored, err
}

// onlyHere returns an error if the setting blobs is missing while some snapshots exist only in
// the object storage.
func onlyHere(root string, stored []string, shared bool) error {
	lacking := 0
	for _, id := range stored {
		if _, err := os.Stat(filepath.Join(root, id)); errors.Is(err, fs.ErrNotExist) {
			lacking++
		}
	}
	if lacking == 0 {
		return nil
	}
	e := bothy.Errorf(bothy.CodeConflict, "the setting blobs is empty, but %d of the snapshots in the records are only in the object storage", lacking)
	if shared { // no single host can have all of them
		return e.WithHint("Set blobs as on the other hosts.")
	}
	return e.WithHint("Set blobs again, or first fetch them to this host with that setting: bothy migrate --blobs-to host")
}

// SnapshotManifests returns the manifests of the snapshots that a home knows, by id: those on
// this host, and those in the object storage that its index lists.
func SnapshotManifests(c config.Config) (map[string][]byte, error) {
	all, err := s3.Known(objectState(c.Home), snapshot.ManifestName)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(c.Home, "snapshots")
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "snp") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, e.Name(), snapshot.ManifestName))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[e.Name()] = text
	}
	return all, nil
}

// CheckBlobs checks whether the configured object storage is usable.
func CheckBlobs(ctx context.Context, c config.Config) doctor.Result {
	if c.Blobs == "" {
		return doctor.Result{Status: doctor.OK, Detail: "The files of snapshots are in " + filepath.Join(c.Home, "snapshots") + "."}
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	b, took, err := tryBucket(ctx, c)
	if err != nil {
		if errors.Is(err, s3.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			err = bothy.Errorf(bothy.CodeStore, "cannot reach the object storage (blobs): %s", lastOf(err)).
				WithHint("Check the endpoint, the network, and for https the certificate (ca_file). Until it is back, snapshots stay on this host's disk.")
		}
		e := bothy.AsError(err)
		if e.Code == bothy.CodeInternal {
			e = bothy.Errorf(bothy.CodeStore, "cannot use the object storage (blobs): %v", err)
		}
		return doctor.Result{Status: doctor.Fail, Detail: strings.ToUpper(e.Detail[:1]) + e.Detail[1:] + ".", Fix: e.Hint}
	}
	return doctor.Result{Status: doctor.OK, Detail: fmt.Sprintf("%s stores, lists and returns objects, in %d ms.", b.Location, took.Milliseconds())}
}

func tryBucket(ctx context.Context, c config.Config) (*s3.Bucket, time.Duration, error) {
	b, err := openBucket(c)
	if err != nil {
		return nil, 0, err
	}
	owner, err := b.Owner(ctx)
	if err != nil {
		return nil, 0, err
	}
	key := filepath.Join(c.Home, "secrets.key")
	if _, missing := os.Stat(key); owner != "" && missing == nil {
		v, err := vault.Open(key)
		if err != nil {
			return nil, 0, err
		}
		if owner != bucketOwner(v) {
			return nil, 0, bothy.Errorf(bothy.CodeConflict, "%s belongs to another server", b.Location).
				WithHint("Give each server, or group of servers with the same secrets.key, a bucket or prefix of its own in the setting blobs.")
		}
	}
	begun := time.Now()
	err = b.Try(ctx, random.Hex(8))
	return b, time.Since(begun), err
}

// lastOf returns the last part of an error's text, which names the cause.
func lastOf(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, s3.ErrUnavailable.Error()); i >= 0 {
		text = strings.TrimPrefix(text[i+len(s3.ErrUnavailable.Error()):], ": ")
	}
	return strings.TrimRight(text, ". ")
}
