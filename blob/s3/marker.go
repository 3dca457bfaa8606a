package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/internal/random"
)

// markerName is the object that records who owns a bucket.
const markerName = "bothy.json"

type marker struct {
	Format int `json:"format"`
	// Owner identifies the servers that share the bucket: those with the same secrets.key.
	Owner string `json:"owner"`
	// Place identifies the bucket, or the prefix in it, even if it is copied elsewhere.
	Place     string    `json:"place,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// id returns the id of the place. Markers from before places were recorded contain none, so it
// is derived.
func (m *marker) id() string {
	if m.Place != "" {
		return m.Place
	}
	sum := sha256.Sum256(fmt.Appendln(nil, m.Owner, m.CreatedAt.UTC()))
	return hex.EncodeToString(sum[:16])
}

const markerFormat = 1

// tryFolder is where Try writes.
const tryFolder = "try"

// Place is a place in object storage as recorded in the database. ID is the id in its marker,
// Location its last known location, and Used says that it is in use rather than about to be
// marked.
type Place struct {
	ID, Location string
	CreatedAt    time.Time
	Used         bool
}

// Places are the records of places.
type Places interface {
	Places(ctx context.Context) ([]Place, error)
	// AddPlace records a place that is about to be marked.
	AddPlace(ctx context.Context, p Place) error
	// UsePlace makes a place the one in use, unless another is, and returns the one in use.
	UsePlace(ctx context.Context, p Place) (Place, error)
}

// Claim identifies a server that wants to use a bucket.
type Claim struct {
	Owner string
	// Places are the owner's records of places.
	Places Places
	// Used says that the records mention objects in the bucket.
	Used bool
	// Adopt accepts a place that has the same owner or is empty, even if the records name
	// another.
	Adopt bool
}

// Claim checks that the place is the one in the owner's records. If they name none and the
// place is empty, it becomes that. After any error except ErrUnavailable, nothing may be read
// or written there.
func (b *Bucket) Claim(ctx context.Context, c Claim) error {
	p, err := b.claim(ctx, c)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unfit, b.place, b.since = err, p.ID, p.CreatedAt
	return err
}

// Check verifies that a claimed bucket still has its marker. If it is gone or different, the
// bucket is not used until it is claimed again.
func (b *Bucket) Check(ctx context.Context) error {
	m, err := b.marker(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case errors.Is(err, ErrUnavailable) || ctx.Err() != nil:
		return err
	case errors.Is(err, fs.ErrNotExist):
		err = b.noMark(Place{Location: b.Location.String(), CreatedAt: b.since})
	case err == nil && m.id() != b.place:
		err = bothy.Errorf(bothy.CodeConflict, "%s was claimed by another server on %s", b.Location, m.CreatedAt.Format(time.DateOnly)).
			WithHint("Restore its contents. Until then nothing is read or written there.")
	}
	if b.unfit == nil && err != nil {
		b.unfit = err
	}
	return err
}

// Place is the id in the marker of a claimed bucket.
func (b *Bucket) Place() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.place
}

func (b *Bucket) claim(ctx context.Context, c Claim) (p Place, err error) {
	if err := b.checkKeys(); err != nil {
		return Place{}, err
	}
	// Read the records before the marker: a place in use was marked before it was recorded so.
	known, err := c.Places.Places(ctx)
	if err != nil {
		return Place{}, err
	}
	m, err := b.marker(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		if err := b.mark(ctx, c, known); err != nil {
			return Place{}, err
		}
		m, err = b.newMarker(ctx) // another server may have been faster
	}
	if err != nil {
		return Place{}, err
	}
	switch {
	case m.Format > markerFormat:
		return Place{}, bothy.Errorf(bothy.CodeUnsupported, "%s was written by a newer Bothy", b.Location).WithHint("Upgrade this server.")
	case m.Owner != c.Owner:
		return Place{}, bothy.Errorf(bothy.CodeConflict, "%s belongs to another server, since %s", b.Location, m.CreatedAt.Format(time.DateOnly)).
			WithHint("Give each server, or group of servers with the same secrets.key, a bucket or prefix of its own in the setting blobs.")
	}
	return b.use(ctx, c, m)
}

// use makes a marked place the one in use if the records name it. They are read after the
// marker, because a place is recorded before it is marked.
func (b *Bucket) use(ctx context.Context, c Claim, m *marker) (Place, error) {
	p := Place{ID: m.id(), Location: b.Location.String(), CreatedAt: m.CreatedAt}
	named := m.Place == "" || c.Adopt
	all, err := c.Places.Places(ctx)
	if err != nil {
		return Place{}, err
	}
	for _, known := range all {
		if known.Used && known.ID != p.ID && !c.Adopt {
			return Place{}, b.otherBucket(known)
		}
		named = named || known.ID == p.ID
	}
	if !named {
		return Place{}, bothy.Errorf(bothy.CodeConflict, "%s has been in use with another database since %s: this database has no record of it", b.Location, m.CreatedAt.Format(time.DateOnly)).
			WithHint("Set store to that database, or blobs to an empty bucket or prefix. " +
				"To take this place over, run `bothy migrate --blobs-adopt`: what no record names is deleted from it after snapshots.grace_hours.")
	}
	used, err := c.Places.UsePlace(ctx, p)
	if err != nil {
		return Place{}, err
	}
	if used.ID != p.ID {
		return Place{}, b.otherBucket(used)
	}
	return used, nil
}

func (b *Bucket) otherBucket(used Place) error {
	return bothy.Errorf(bothy.CodeConflict, "%s is not the place in the records, which was last used as %s", b.Location, used.Location).
		WithHint("Correct the setting blobs. To move, copy everything there, including %s; to use this place instead, run `bothy migrate --blobs-adopt`. Nothing was changed.", markerName)
}

// mark writes the owner's marker to an empty place, unless another server does so first.
func (b *Bucket) mark(ctx context.Context, c Claim, known []Place) error {
	now := time.Now().UTC().Truncate(time.Second)
	p := Place{ID: random.Hex(16), Location: b.Location.String(), CreatedAt: now}
	lost := false
	for _, k := range known {
		if !c.Adopt && k.Used {
			return b.noMark(k)
		}
		if lost = k.Used && k.Location == p.Location; lost {
			p = k
			break
		}
	}
	if c.Used && !c.Adopt {
		return bothy.Errorf(bothy.CodeConflict, "%s has no marker, but the records say that it contains snapshots: it is the wrong bucket, or was emptied", b.Location).
			WithHint("Correct the setting blobs, or restore the bucket. Nothing was changed.")
	}
	names, err := b.names(ctx, b.Location.Prefix, 3)
	if err != nil {
		return err
	}
	if slices.Contains(names, markerName) {
		return nil
	}
	// Ignore a leftover test object.
	names = slices.DeleteFunc(names, func(name string) bool { return name == tryFolder })
	if len(names) > 0 && !lost {
		return bothy.Errorf(bothy.CodeConflict, "%s contains objects that Bothy did not write, such as %s", b.Location, names[0]).
			WithHint("Give an empty bucket, or a prefix of its own: s3://%s/bothy?….", b.Location.Bucket)
	}
	// Record it first, so that other hosts that find the marker find its record too.
	if err := c.Places.AddPlace(ctx, p); err != nil {
		return err
	}
	if err := failpoint.Hit("s3.mark"); err != nil {
		return err
	}
	text, _ := json.Marshal(marker{Format: markerFormat, Owner: c.Owner, Place: p.ID, CreatedAt: now})
	if err := b.put(ctx, b.key(markerName), text, true); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// noMark is the error for a place without a marker while the records name one.
func (b *Bucket) noMark(used Place) error {
	if used.Location != b.Location.String() {
		return b.otherBucket(used)
	}
	return bothy.Errorf(bothy.CodeConflict, "%s has lost its marker of %s: the bucket was emptied or recreated", b.Location, used.CreatedAt.Format(time.DateOnly)).
		WithHint("Restore its contents. To continue without them, run `bothy migrate --blobs-adopt`: snapshots on the hosts' disks are uploaded again, and the others are lost. Nothing was changed.")
}

// newMarker reads a marker that was just written. Some storage reports an object before it can
// be read.
func (b *Bucket) newMarker(ctx context.Context) (m *marker, err error) {
	for pause := 10 * time.Millisecond; pause < 3*time.Second; pause *= 2 {
		if m, err = b.marker(ctx); !errors.Is(err, fs.ErrNotExist) {
			return m, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
	return nil, fmt.Errorf("%w: %s has a new marker that cannot be read yet", ErrUnavailable, b.Location)
}

// marker reads the marker. A missing one is fs.ErrNotExist.
func (b *Bucket) marker(ctx context.Context) (*marker, error) {
	text, err := b.get(ctx, b.key(markerName), 64<<10, 0)
	if err != nil {
		return nil, err
	}
	var m marker
	if err := json.Unmarshal(text, &m); err != nil || m.Format < 1 || m.Owner == "" {
		return nil, bothy.Errorf(bothy.CodeConflict, "%s has an object %s that Bothy did not write", b.Location, markerName).
			WithHint("Give a bucket or prefix of its own in the setting blobs.")
	}
	return &m, nil
}

// checkKeys returns an error if there are no keys for the storage.
func (b *Bucket) checkKeys() error {
	v, err := b.creds.GetWithContext(b.client.CredContext())
	if err == nil && v.AccessKeyID != "" {
		return nil
	}
	return bothy.Errorf(bothy.CodeStore, "there are no keys for %s", b.Location).
		WithHint("Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the server's environment, or give credentials=FILE in the setting blobs.").Because(err)
}

// Owner returns the owner in the marker without changing anything; "" if there is no marker.
func (b *Bucket) Owner(ctx context.Context) (string, error) {
	if err := b.checkKeys(); err != nil {
		return "", err
	}
	m, err := b.marker(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return m.Owner, nil
}

// Try writes, reads, lists and deletes an object, and returns what fails.
func (b *Bucket) Try(ctx context.Context, name string) error {
	if err := b.checkKeys(); err != nil {
		return err
	}
	key, text := b.key(tryFolder, name), []byte(name)
	if err := b.put(ctx, key, text, true); err != nil {
		return err
	}
	err := b.tryObject(ctx, key, text)
	return errors.Join(err, b.remove(context.WithoutCancel(ctx), key))
}

func (b *Bucket) tryObject(ctx context.Context, key string, text []byte) error {
	got, err := b.get(ctx, key, 1<<10, 0)
	if err != nil {
		return err
	}
	if string(got) != string(text) {
		return fmt.Errorf("%s returned different bytes than were written", b.Location)
	}
	sizes, err := b.list(ctx, key)
	if err != nil {
		return err
	}
	if len(sizes) != 1 {
		return bothy.Errorf(bothy.CodeStore, "%s does not list what was just written", b.Location).WithHint("Bothy requires strongly consistent storage: what is written must be listed at once.")
	}
	if err := b.put(ctx, key, []byte("other"), true); !errors.Is(err, fs.ErrExist) {
		return bothy.Errorf(bothy.CodeUnsupported, "%s ignores If-None-Match and overwrites objects", b.Location).
			WithHint("Use a server or version that supports conditional writes.")
	}
	return nil
}
