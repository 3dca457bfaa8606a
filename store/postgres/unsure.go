package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bothy-dev/bothy/store"
)

// unsure remembers the writes of sandboxes whose outcome is unknown, because the connection was
// lost before the answer. A later write of the same version finds another in the row if one of
// them was made, and that is not a conflict.
type unsure struct {
	mu     sync.Mutex
	writes map[string]unsureWrites // by sandbox
}

// unsureWrites are attempts to make the same version of a row.
type unsureWrites struct {
	version int64
	records map[[sha256.Size]byte]bool
}

// outcomeUnknown reports whether a change that failed may have been made.
func outcomeUnknown(err error) bool {
	if err == nil || isConnect(err) {
		return false
	}
	return !errors.As(err, new(*pgconn.PgError)) || gone(err)
}

func (u *unsure) add(id string, version int64, record string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w, ok := u.writes[id]
	if !ok || w.version != version {
		// The version before is read by now, so what became of the attempts at it is known.
		w = unsureWrites{version, map[[sha256.Size]byte]bool{}}
	}
	w.records[sha256.Sum256([]byte(record))] = true
	if u.writes == nil {
		u.writes = map[string]unsureWrites{}
	}
	u.writes[id] = w
}

func (u *unsure) forget(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.writes, id)
}

func (u *unsure) any(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.writes[id]
	return ok
}

func (u *unsure) has(id string, version int64, record string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.writes[id]
	return w.version == version && w.records[sha256.Sum256([]byte(record))]
}

// ownWrite returns the version and the record of a sandbox's row if a write was refused because of
// an own earlier one. Otherwise the version is 0.
func (s *Store) ownWrite(ctx context.Context, id string, refusal error) (version int64, record string, err error) {
	if !errors.As(refusal, new(*store.Conflict)) || !s.unsure.any(id) {
		return 0, "", nil
	}
	type row struct {
		Record  string
		Version int64
	}
	r, _, err := first(context.WithoutCancel(ctx), s, "get sandbox", `SELECT `+sandboxColumns+` FROM sandboxes WHERE id = $1`, []any{id}, pgx.RowToStructByPos[row])
	if err != nil || !s.unsure.has(id, r.Version, r.Record) {
		return 0, "", err
	}
	return r.Version, r.Record, nil
}
