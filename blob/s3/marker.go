package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
)

// markerName is the object that says whose a bucket is.
const markerName = "bothy.json"

type marker struct {
	Format int `json:"format"`
	// Owner names the servers that share the bucket: those with one key for secrets.
	Owner     string    `json:"owner"`
	CreatedAt time.Time `json:"created_at"`
}

const markerFormat = 1

// tryFolder is where Try writes.
const tryFolder = "try"

// Claim finds out whether the place is this owner's, and makes it so where it is empty. With
// used, it must be the owner's already: there are records of what lies in it. Every error
// but ErrUnavailable is that nothing may be read or written there.
func (b *Bucket) Claim(ctx context.Context, owner string, used bool) error {
	err := b.claim(ctx, owner, used)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unfit = err
	return err
}

func (b *Bucket) claim(ctx context.Context, owner string, used bool) error {
	if err := b.checkKeys(); err != nil {
		return err
	}
	m, err := b.marker(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		if err := b.mayClaim(ctx, used); err != nil {
			return err
		}
		text, _ := json.Marshal(marker{Format: markerFormat, Owner: owner, CreatedAt: time.Now().UTC().Truncate(time.Second)})
		if err := b.put(ctx, b.key(markerName), text, true); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		m, err = b.marker(ctx) // another may have been quicker
	}
	if err != nil {
		return err
	}
	switch {
	case m.Format > markerFormat:
		return bothy.Errorf(bothy.CodeUnsupported, "%s was written by a newer Bothy", b.Location).WithHint("Upgrade this server.")
	case m.Owner != owner:
		return bothy.Errorf(bothy.CodeConflict, "%s belongs to another server, since %s", b.Location, m.CreatedAt.Format(time.DateOnly)).
			WithHint("Give each server, or group of servers with the same secrets.key, a bucket or prefix of its own in the setting blobs.")
	}
	return nil
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

// mayClaim refuses places that are empty and should not be, or should be empty and are not.
func (b *Bucket) mayClaim(ctx context.Context, used bool) error {
	if used {
		return bothy.Errorf(bothy.CodeConflict, "%s has no mark of this server, but its records say that snapshots lie there: it is the wrong bucket, or was emptied", b.Location).
			WithHint("Correct the setting blobs, or restore the bucket. Nothing was changed.")
	}
	names, err := b.names(ctx, b.Location.Prefix, 2)
	if err != nil {
		return err
	}
	// A test object that could not be removed does no harm.
	names = slices.DeleteFunc(names, func(name string) bool { return name == tryFolder })
	if len(names) > 0 {
		return bothy.Errorf(bothy.CodeConflict, "%s holds objects that are not Bothy's, such as %s", b.Location, names[0]).
			WithHint("Give an empty bucket, or a prefix of its own: s3://%s/bothy?….", b.Location.Bucket)
	}
	return nil
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
