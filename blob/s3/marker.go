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

// markerName is the object that says whose a bucket is.
const markerName = "bothy.json"

type marker struct {
	Format int `json:"format"`
	// Owner names the servers that share the bucket: those with one key for secrets.
	Owner string `json:"owner"`
	// Place names the bucket, or the prefix in it, wherever it is copied.
	Place     string    `json:"place,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// id names the place. Marks of servers that kept no records of places name none.
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

// Place is a place in object storage as the records have it: ID is what its mark says,
// Location where it was when it was used last, and Used says that it is the one that is used
// and not one that is about to be marked.
type Place struct {
	ID, Location string
	CreatedAt    time.Time
	Used         bool
}

// Places are the records of places.
type Places interface {
	Places(ctx context.Context) ([]Place, error)
	// AddPlace writes down a place that is about to be marked.
	AddPlace(ctx context.Context, p Place) error
	// UsePlace makes a place the one that is used unless another is, and returns that which is.
	UsePlace(ctx context.Context, p Place) (Place, error)
}

// Claim says who wants to use a bucket.
type Claim struct {
	Owner string
	// Places are the owner's records of places.
	Places Places
	// Used says that there are records of what lies in the bucket.
	Used bool
	// Adopt takes a place that is the owner's, or that is empty, whatever lay in another.
	Adopt bool
}

// Claim finds out whether the place is the one that the owner's records name, and makes it so
// where they name none and it is empty. Every error but ErrUnavailable is that nothing may be
// read or written there.
func (b *Bucket) Claim(ctx context.Context, c Claim) error {
	p, err := b.claim(ctx, c)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unfit, b.place, b.since = err, p.ID, p.CreatedAt
	return err
}

// Check finds out whether a claimed bucket still has its mark. One that has lost it, or has
// another, is not used until it is claimed again.
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
		err = bothy.Errorf(bothy.CodeConflict, "%s was made another server's, on %s", b.Location, m.CreatedAt.Format(time.DateOnly)).
			WithHint("Restore what was in it. Nothing is read or written there until then.")
	}
	if b.unfit == nil && err != nil {
		b.unfit = err
	}
	return err
}

// Place is what the mark of a claimed bucket says.
func (b *Bucket) Place() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.place
}

func (b *Bucket) claim(ctx context.Context, c Claim) (p Place, err error) {
	if err := b.checkKeys(); err != nil {
		return Place{}, err
	}
	// A place that is used has had its mark for as long, so they are read before it.
	known, err := c.Places.Places(ctx)
	if err != nil {
		return Place{}, err
	}
	m, err := b.marker(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		if err := b.mark(ctx, c, known); err != nil {
			return Place{}, err
		}
		m, err = b.newMarker(ctx) // another may have been quicker
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

// use makes the place with a mark the one that is used, if it is one that the records name.
// They are read after the mark: who marks a place has told them before.
func (b *Bucket) use(ctx context.Context, c Claim, m *marker) (Place, error) {
	p := Place{ID: m.id(), Location: b.Location.String(), CreatedAt: m.CreatedAt}
	named := m.Place == "" || c.Adopt
	all, err := c.Places.Places(ctx)
	if err != nil {
		return Place{}, err
	}
	for _, known := range all {
		if known.Used && known.ID != p.ID && !c.Adopt {
			return Place{}, b.notThePlace(known)
		}
		named = named || known.ID == p.ID
	}
	if !named {
		return Place{}, bothy.Errorf(bothy.CodeConflict, "%s is in use with another database, since %s: this one has no record of it", b.Location, m.CreatedAt.Format(time.DateOnly)).
			WithHint("Name that database in the setting store, or an empty bucket or prefix in the setting blobs. " +
				"To take this one over, run `bothy migrate --blobs-adopt`: what no record names is deleted from it after snapshots.grace_hours.")
	}
	used, err := c.Places.UsePlace(ctx, p)
	if err != nil {
		return Place{}, err
	}
	if used.ID != p.ID {
		return Place{}, b.notThePlace(used)
	}
	return used, nil
}

func (b *Bucket) notThePlace(used Place) error {
	return bothy.Errorf(bothy.CodeConflict, "%s is not the place that the records name, which was %s when it was used last", b.Location, used.Location).
		WithHint("Correct the setting blobs. To move, copy everything there, also %s; to start with this one instead, run `bothy migrate --blobs-adopt`. Nothing was changed.", markerName)
}

// mark marks an empty place as the owner's, unless another server does so first.
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
		return bothy.Errorf(bothy.CodeConflict, "%s has no mark of this server, but its records say that snapshots lie there: it is the wrong bucket, or was emptied", b.Location).
			WithHint("Correct the setting blobs, or restore the bucket. Nothing was changed.")
	}
	names, err := b.names(ctx, b.Location.Prefix, 3)
	if err != nil {
		return err
	}
	if slices.Contains(names, markerName) {
		return nil
	}
	// A test object that could not be removed does no harm.
	names = slices.DeleteFunc(names, func(name string) bool { return name == tryFolder })
	if len(names) > 0 && !lost {
		return bothy.Errorf(bothy.CodeConflict, "%s holds objects that are not Bothy's, such as %s", b.Location, names[0]).
			WithHint("Give an empty bucket, or a prefix of its own: s3://%s/bothy?….", b.Location.Bucket)
	}
	// The other hosts of a cluster find it in the records once they find the mark.
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

// noMark is the error of a place without a mark while the records name one.
func (b *Bucket) noMark(used Place) error {
	if used.Location != b.Location.String() {
		return b.notThePlace(used)
	}
	return bothy.Errorf(bothy.CodeConflict, "%s has lost the mark that it had since %s: the bucket was emptied, or made anew", b.Location, used.CreatedAt.Format(time.DateOnly)).
		WithHint("Restore what was in it. To do without, run `bothy migrate --blobs-adopt`: snapshots on the disks of hosts are then carried there again, and the others are lost. Nothing was changed.")
}

// newMarker reads a marker that was just written, by this server or another. Some storage
// says that it is there before it can be read.
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
	return nil, fmt.Errorf("%w: %s has a new mark that cannot be read yet", ErrUnavailable, b.Location)
}

// marker reads the marker; fs.ErrNotExist where there is none.
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

// checkKeys says so when there are no keys to speak with.
func (b *Bucket) checkKeys() error {
	v, err := b.creds.GetWithContext(b.client.CredContext())
	if err == nil && v.AccessKeyID != "" {
		return nil
	}
	return bothy.Errorf(bothy.CodeStore, "there are no keys for %s", b.Location).
		WithHint("Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the server's environment, or give credentials=FILE in the setting blobs.").Because(err)
}

// Owner returns whose the place is, without changing anything; "" where there is no mark.
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

// Try writes, reads, lists and removes an object, and says what does not work.
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
		return fmt.Errorf("%s gave back other bytes than were written", b.Location)
	}
	sizes, err := b.list(ctx, key)
	if err != nil {
		return err
	}
	if len(sizes) != 1 {
		return bothy.Errorf(bothy.CodeStore, "%s does not list what was just written", b.Location).WithHint("Bothy needs storage that is consistent: what is written is listed at once.")
	}
	if err := b.put(ctx, key, []byte("other"), true); !errors.Is(err, fs.ErrExist) {
		return bothy.Errorf(bothy.CodeUnsupported, "%s overwrites objects although it is told not to (If-None-Match)", b.Location).
			WithHint("Use a server or version that knows conditional writes.")
	}
	return nil
}
