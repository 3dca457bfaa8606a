package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/record"
)

// databaseNow is the database's time in nanoseconds. When a sandbox is due to be resumed is
// stored by this clock, since the hosts that write and read it may have different ones.
const databaseNow = `(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint`

// resumeIn is how long after now a sandbox is due to be resumed, in nanoseconds; nil if it is not.
func (s *Store) resumeIn(b *store.Sandbox) *int64 {
	at := b.ResumeAt()
	if at == nil {
		return nil
	}
	in := int64(at.Sub(s.now()))
	return &in
}

// A new sandbox is added, and an existing one replaced if it still has the version that was read.
// Both fail if they write nothing. The first parameters are the same; who owns a row, and its key,
// are set when it is added. An ended one's key is dropped.
const (
	addSandbox = `WITH written AS (INSERT INTO sandboxes (id, project, name, state, created_at, ended_at, pooled, metadata, record, resume_at, version, host, host_epoch, made_key)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text[], $9, $10::bigint + ` + databaseNow + `, $11::bigint + 1, $12, $13, $14) ON CONFLICT (id) DO NOTHING RETURNING 1) ` + orConflict
	putSandbox = `WITH written AS (UPDATE sandboxes SET project = $2, name = $3, state = $4, created_at = $5, ended_at = $6, pooled = $7, metadata = $8::text[],
	record = $9, resume_at = $10::bigint + ` + databaseNow + `, version = version + 1,
	made_key = CASE WHEN $4::text IN ('stopped', 'failed') THEN NULL ELSE made_key END WHERE id = $1 AND version = $11::bigint RETURNING 1) ` + orConflict
	orConflict = `SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM written) THEN sandbox_conflict($1) END`
)

// sandboxColumns are what sandboxes are read from.
const sandboxColumns = `record, version`

func scanSandbox(row pgx.CollectableRow) (*store.Sandbox, error) {
	var text string
	var version int64
	if err := row.Scan(&text, &version); err != nil {
		return nil, err
	}
	return record.DecodeSandbox(text, version)
}

// PutSandbox implements store.Store.
func (s *Store) PutSandbox(ctx context.Context, b *store.Sandbox) error {
	return s.putSandbox(ctx, b)
}

// StartSandbox implements store.Hosts.
func (s *Store) StartSandbox(ctx context.Context, sb *store.Sandbox, b store.StartBounds) error {
	return s.putSandbox(ctx, sb, do(`SELECT host_starts($1, $2, $3, $4)`, sb.ProjectID, sb.ID, b.Sandboxes, b.PerMinute))
}

// putSandbox stores a sandbox after the given checks.
func (s *Store) putSandbox(ctx context.Context, b *store.Sandbox, before ...statement) error {
	text, err := record.EncodeSandbox(b)
	if err != nil {
		return fmt.Errorf("store: put sandbox %s: %w", b.ID, err)
	}
	for version := b.Version; ; {
		err := s.writeSandbox(ctx, b, version, text, before)
		now := version + 1
		if err != nil {
			// An earlier attempt may have been made although its answer was lost.
			own, there, uerr := s.ownWrite(ctx, b.ID, err)
			if uerr != nil || own == 0 {
				return cmp.Or(uerr, err)
			}
			if there != text {
				version = own
				continue
			}
			now = own
		}
		s.unsure.forget(b.ID)
		b.Version = now
		return nil
	}
}

// writeSandbox replaces a version of a sandbox, whose record is given.
func (s *Store) writeSandbox(ctx context.Context, b *store.Sandbox, version int64, text string, before []statement) error {
	var list []statement
	if s.shared() {
		list = append(list, do(`SELECT host_owns($1, $2)`, s.lease.epoch, b.ID))
	}
	list = append(list, before...)
	args := []any{b.ID, b.ProjectID, b.Name, string(b.State), nanos(b.CreatedAt), endedAt(b), b.Pooled, Pairs(b.Metadata), text, s.resumeIn(b), version}
	if version == 0 {
		key := sql.NullString{String: b.Key, Valid: b.Key != "" && !b.State.Ended()}
		if key.Valid {
			list = append(list, do(`UPDATE sandboxes SET made_key = NULL WHERE project = $1 AND made_key = $2 AND (created_at < $3 OR state IN ('stopped', 'failed'))`,
				b.ProjectID, b.Key, nanos(b.CreatedAt.Add(-store.KeyLife))))
		}
		list = append(list, do(addSandbox, append(args, s.member.Name, s.ownEpoch(), key)...))
	} else {
		list = append(list, do(putSandbox, args...))
	}
	if b.State == bothy.StateStopped || b.State == bothy.StateFailed {
		// A concurrent AddLink locks the sandbox's row, so its link is visible here.
		list = append(list, do(`DELETE FROM links WHERE sandbox_id = $1`, b.ID))
	}
	return refused(b.ID, version, s.changing(ctx, "put sandbox", whole, func(ctx context.Context) error {
		_, err := s.send(ctx, whole, list, nil)
		if outcomeUnknown(err) {
			s.unsure.add(b.ID, version+1, text)
		}
		return err
	}))
}

// refused returns the error for the caller of a change to a version of a sandbox.
func refused(id string, version int64, err error) error {
	var e *pgconn.PgError
	switch {
	case !errors.As(err, &e):
		return err
	case e.Code == codeDuplicate && e.ConstraintName == "sandboxes_made_key":
		return store.KeyTaken()
	case e.Code != codeConflict:
		return err
	}
	found, perr := strconv.ParseInt(e.Message, 10, 64)
	if perr != nil {
		return err
	}
	return (&store.Conflict{Sandbox: id, Expected: version, Found: found}).AsError()
}

// endedAt is when a sandbox ended, or NULL.
func endedAt(b *store.Sandbox) *int64 {
	if b.Ended == nil {
		return nil
	}
	return nanosOrNull(&b.Ended.At)
}

// Pairs are the array elements by which a sandbox is found by its metadata.
func Pairs(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k, v := range m {
		pair, err := json.Marshal([2]string{k, v})
		if err == nil { // strings cannot fail
			out = append(out, string(pair))
		}
	}
	return out
}

// Sandbox implements store.Store.
func (s *Store) Sandbox(ctx context.Context, id string) (*store.Sandbox, error) {
	b, found, err := first(ctx, s, "get sandbox", `SELECT `+sandboxColumns+` FROM sandboxes WHERE id = $1`, []any{id}, scanSandbox)
	if err == nil && !found {
		return nil, bothy.NoSandbox(id)
	}
	return b, err
}

// SandboxByKey implements store.Store.
func (s *Store) SandboxByKey(ctx context.Context, projectID, key string, since time.Time) (*store.Sandbox, error) {
	b, found, err := first(ctx, s, "get a sandbox by its key", `SELECT `+sandboxColumns+` FROM sandboxes
		WHERE project = $1 AND made_key = $2 AND created_at >= $3 AND state NOT IN ('stopped', 'failed')`,
		[]any{projectID, key, nanos(since)}, scanSandbox)
	if err == nil && !found {
		return nil, bothy.Errorf(bothy.CodeSandboxNotFound, "no sandbox was created with the Idempotency-Key %q", key)
	}
	return b, err
}

// Sandboxes implements store.Store. Ready machines have no owner yet and are not listed.
func (s *Store) Sandboxes(ctx context.Context, projectID string, f bothy.SandboxFilter) (p bothy.Page[*store.Sandbox], err error) {
	var q selection
	q.add("project = ? AND NOT pooled", projectID)
	in(&q, "state", f.States)
	if f.Name != "" {
		q.add("name = ?", f.Name)
	}
	if len(f.Metadata) > 0 {
		q.add("metadata @> ?::text[]", Pairs(f.Metadata))
	}
	if err := q.after(f.Cursor); err != nil {
		return p, err
	}
	limit := record.PageSize(f.Limit)
	text, args := q.query(sandboxColumns, "sandboxes", limit)
	items, err := list(ctx, s, "list sandboxes", text, args, scanSandbox)
	if err != nil {
		return p, err
	}
	return record.Page(items, limit, func(b *store.Sandbox) string { return record.Cursor(b.CreatedAt, b.ID) }), nil
}

// SandboxesInState implements store.Store.
func (s *Store) SandboxesInState(ctx context.Context, states ...bothy.State) ([]*store.Sandbox, error) {
	if len(states) == 0 {
		return nil, nil
	}
	return list(ctx, s, "list sandboxes", `SELECT `+sandboxColumns+` FROM sandboxes WHERE state = ANY($1::text[]) ORDER BY created_at DESC, id DESC`,
		[]any{words(states)}, scanSandbox)
}

// OwnSandboxesInState implements store.Store.
func (s *Store) OwnSandboxesInState(ctx context.Context, states ...bothy.State) ([]*store.Sandbox, error) {
	if !s.shared() {
		return s.SandboxesInState(ctx, states...)
	}
	return list(ctx, s, "list sandboxes", `SELECT `+sandboxColumns+` FROM sandboxes WHERE host = $1 AND host_epoch = $2 AND state = ANY($3::text[]) ORDER BY created_at DESC, id DESC`,
		[]any{s.member.Name, s.lease.epoch, words(states)}, scanSandbox)
}

// SandboxesToResume implements store.Store.
func (s *Store) SandboxesToResume(ctx context.Context, by time.Time, limit int) ([]*store.Sandbox, error) {
	return list(ctx, s, "list sandboxes to resume", `SELECT `+sandboxColumns+` FROM sandboxes WHERE resume_at <= $1::bigint + `+databaseNow+` AND state = 'paused' AND (host = '' OR host_epoch = $3)
		ORDER BY resume_at, id LIMIT $2`, []any{int64(by.Sub(s.now())), limit, s.ownEpoch()}, scanSandbox)
}

// DeleteSandboxesEndedBefore implements store.Store.
func (s *Store) DeleteSandboxesEndedBefore(ctx context.Context, t time.Time) (int, error) {
	return s.deleteOld(ctx, "forget sandboxes", `DELETE FROM sandboxes WHERE id IN
		(SELECT id FROM sandboxes WHERE state IN ('stopped', 'failed') AND coalesce(ended_at, created_at) < $1 LIMIT $2)`, t)
}
