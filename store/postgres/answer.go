package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/store"
)

const (
	// answerLife is how long an answer is stored.
	answerLife = store.KeyLife
	// forgetEvery is how often old answers are deleted.
	forgetEvery = time.Minute
	// rowBytes is roughly the size of a row without its header and body.
	rowBytes = 300
	// evictAtOnce is how many answers one change evicts, and forgetAtOnce how many expired ones
	// a call deletes.
	evictAtOnce  = 16
	forgetAtOnce = 500
)

// answers tracks how much is stored for idempotency keys, so that it need not be queried each
// time. Concurrent writes may make it slightly wrong.
type answers struct {
	bounds store.AnswerBounds

	mu     sync.Mutex // guards the following
	used   map[string]*answerUse
	bytes  int64
	forgot time.Time // when expired answers were last deleted
	// late are outcomes of reservations that are not in the database yet.
	late      map[answerKey]lateEnd
	lateBytes int64

	evicting sync.Mutex // held while evicting
}

// answerUse is the size of a project's answers.
type answerUse struct{ bytes, keys int64 }

// count reads from the database what is used.
func (a *answers) count(ctx context.Context, pool *pgxpool.Pool) error {
	used, bytes := map[string]*answerUse{}, int64(0)
	rows, err := pool.Query(ctx, `SELECT project, sum(size)::bigint, count(*) FROM answers GROUP BY project`)
	if err != nil {
		return err
	}
	var project string
	var u answerUse
	_, err = pgx.ForEachRow(rows, []any{&project, &u.bytes, &u.keys}, func() error {
		one := u
		used[project] = &one
		bytes += u.bytes
		return nil
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used, a.bytes = used, bytes
	return nil
}

// add records a change in what a project uses.
func (a *answers) add(project string, bytes, keys int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.used[project]
	if u == nil {
		u = &answerUse{}
		a.used[project] = u
	}
	u.bytes += bytes
	u.keys += keys
	a.bytes += bytes
	if u.keys <= 0 && u.bytes <= 0 {
		delete(a.used, project)
	}
}

// ReserveAnswer implements store.Store. A reservation of a server before this one is void:
// the server that made it no longer holds the database.
func (s *Store) ReserveAnswer(ctx context.Context, projectID, key, fingerprint string) (*store.Answer, error) {
	return s.reserveAnswer(ctx, projectID, key, fingerprint, light)
}

// ReserveOnce implements store.Store. It waits for the disk, unlike ReserveAnswer.
func (s *Store) ReserveOnce(ctx context.Context, projectID, key, fingerprint string) (*store.Answer, error) {
	return s.reserveAnswer(ctx, projectID, key, fingerprint, whole)
}

func (s *Store) reserveAnswer(ctx context.Context, projectID, key, fingerprint string, k kind) (*store.Answer, error) {
	now := s.now()
	if err := s.settle(ctx, answerKey{projectID, key}); err != nil {
		return nil, err
	}
	if err := s.forgetAnswers(ctx, now); err != nil {
		return nil, err
	}
	if err := s.makeRoom(ctx, projectID, rowBytes, 1); err != nil {
		return nil, err
	}
	var found *store.Answer
	var removed []answerSize
	var added bool
	nonce := random.Hex(8)
	err := s.changing(ctx, "reserve answer", k, func(ctx context.Context) error {
		b := &pgx.Batch{}
		s.hold(b, k)
		b.Queue(`DELETE FROM answers WHERE project = $1 AND key = $2 AND (created_at < $3 OR status = 0 AND NOT dropped AND `+s.voidEpoch("$4")+`) RETURNING project, size`,
			clean([]any{projectID, key, nanos(now.Add(-answerLife)), s.lease.epoch})...)
		b.Queue(`INSERT INTO answers (project, key, fingerprint, created_at, epoch, nonce, status, dropped, size, header)
			VALUES ($1, $2, $3, $4, $5, $6, 0, $8, $7, '{}') ON CONFLICT (project, key) DO NOTHING`,
			clean([]any{projectID, key, fingerprint, nanos(now), s.lease.epoch, nonce, rowBytes, k == whole})...)
		b.Queue(`SELECT fingerprint, created_at, status, dropped, status = 0 AND dropped AND `+s.voidEpoch("$4")+`, header, body, nonce = $3
			FROM answers WHERE project = $1 AND key = $2`, clean([]any{projectID, key, nonce, s.lease.epoch})...)
		r := s.pool.SendBatch(ctx, b)
		err := func() (err error) {
			if _, err = r.Exec(); err != nil {
				return err
			}
			rows, err := r.Query()
			if err != nil {
				return err
			}
			if removed, err = pgx.CollectRows(rows, scanSize); err != nil {
				return err
			}
			if _, err = r.Exec(); err != nil {
				return err
			}
			if rows, err = r.Query(); err != nil {
				return err
			}
			found, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (*store.Answer, error) { return scanAnswer(row, &added) })
			return err
		}()
		if end := r.Close(); err == nil {
			err = end
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.answers.removed(removed)
	if added {
		s.answers.add(projectID, rowBytes, 1)
		return nil, nil
	}
	return found, nil
}

// voidEpoch is the SQL condition that the server that made a reservation is gone.
func (s *Store) voidEpoch(mine string) string {
	if s.shared() {
		return "epoch <> " + mine + " AND NOT EXISTS (SELECT 1 FROM hosts h WHERE h.epoch = answers.epoch AND h.dead_at IS NULL)"
	}
	return "epoch < " + mine
}

// scanAnswer reads an answer, and whether it is the caller's own reservation.
func scanAnswer(row pgx.CollectableRow, own *bool) (*store.Answer, error) {
	var a store.Answer
	var created int64
	var header string
	if err := row.Scan(&a.Fingerprint, &created, &a.Status, &a.Dropped, &a.Unknown, &header, &a.Body, own); err != nil {
		return nil, err
	}
	a.CreatedAt = time.Unix(0, created).UTC()
	return &a, json.Unmarshal([]byte(header), &a.Header)
}

// answerSize is the size of a deleted row.
type answerSize struct {
	project string
	size    int64
}

func scanSize(row pgx.CollectableRow) (v answerSize, err error) {
	return v, row.Scan(&v.project, &v.size)
}

func (a *answers) removed(list []answerSize) {
	for _, r := range list {
		a.add(r.project, -r.size, -1)
	}
}

// StoreAnswer implements store.Store. While the database is unreachable, the answer is kept in
// memory.
func (s *Store) StoreAnswer(ctx context.Context, projectID, key string, x store.Answer) error {
	return s.later(s.storeAnswer(ctx, projectID, key, x), answerKey{projectID, key}, lateEnd{&x})
}

func (s *Store) storeAnswer(ctx context.Context, projectID, key string, x store.Answer) error {
	header, err := json.Marshal(x.Header)
	if err != nil {
		return fmt.Errorf("store: store answer: %w", err)
	}
	more := int64(len(header) + len(x.Body))
	if b := s.answers.bounds; x.Dropped || more > min(b.ProjectBytes, b.Bytes) {
		x.Dropped, x.Body, header, more = true, nil, []byte("{}"), 0
	}
	if err := s.makeRoom(ctx, projectID, more, 0); err != nil {
		return err
	}
	// Storing the same answer twice is harmless.
	n, err := s.change(ctx, "store answer", light, do(`UPDATE answers SET status = $1, dropped = $2, size = $3, header = $4, body = $5
		WHERE project = $6 AND key = $7 AND epoch = $8 AND (status = 0 OR status = $1 AND size = $3)`,
		x.Status, x.Dropped, rowBytes+more, string(header), x.Body, projectID, key, s.lease.epoch))
	if err == nil && n == 0 {
		err = errors.New("store: store answer: the key is not reserved")
	}
	if err != nil {
		return err
	}
	s.answers.add(projectID, more, 0)
	return nil
}

// ForgetAnswer implements store.Store. While the database is unreachable, that is kept in
// memory.
func (s *Store) ForgetAnswer(ctx context.Context, projectID, key string) error {
	_, err := s.deleteAnswers(ctx, `project = $1 AND key = $2`, projectID, key)
	return s.later(err, answerKey{projectID, key}, lateEnd{})
}

// deleteAnswers deletes the rows that a condition selects, and returns how many.
func (s *Store) deleteAnswers(ctx context.Context, which string, args ...any) (int, error) {
	var removed []answerSize
	err := s.changing(ctx, "forget answers", light, func(ctx context.Context) error {
		_, err := s.send(ctx, light, []statement{do(`DELETE FROM answers WHERE `+which+` RETURNING project, size`, args...)}, func(rows pgx.Rows) (err error) {
			removed, err = pgx.CollectRows(rows, scanSize)
			return err
		})
		return err
	})
	if err != nil {
		return 0, err
	}
	s.answers.removed(removed)
	return len(removed), nil
}

// forgetAnswers deletes some expired answers from time to time. If there are many, the next
// calls continue, so that none takes long.
func (s *Store) forgetAnswers(ctx context.Context, now time.Time) error {
	a := &s.answers
	a.mu.Lock()
	since := now.Sub(a.forgot)
	due := since < 0 || since >= forgetEvery
	if due {
		a.forgot = now
	}
	a.mu.Unlock()
	if !due {
		return nil
	}
	if s.shared() {
		// Other hosts store answers as well.
		if err := a.count(ctx, s.pool); err != nil {
			s.log.Warn("cannot count the answers in the database", "error", reason(err))
		}
	}
	n, err := s.deleteAnswers(ctx, `id IN (SELECT id FROM answers WHERE created_at < $1 ORDER BY created_at LIMIT $2)`, nanos(now.Add(-answerLife)), forgetAtOnce)
	if err != nil || n == forgetAtOnce {
		a.mu.Lock()
		a.forgot = time.Time{}
		a.mu.Unlock()
	}
	return err
}

// over reports whether a project would exceed its limits with more bytes and keys, and whether
// it has too many keys. largest is the project to evict from if the total limit is exceeded,
// else "".
func (a *answers) over(project string, bytes, keys int64) (tooMuch, tooMany bool, largest string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var u answerUse
	if a.used[project] != nil {
		u = *a.used[project]
	}
	tooMany = u.keys+keys > a.bounds.ProjectKeys
	tooMuch = tooMany || u.bytes+bytes > a.bounds.ProjectBytes
	if a.bytes+bytes > a.bounds.Bytes {
		most := int64(-1)
		for p, u := range a.used {
			if u.bytes > most {
				largest, most = p, u.bytes
			}
		}
	}
	return tooMuch, tooMany, largest
}

// makeRoom evicts until a project, and all projects together, will be within their limits. It
// drops the bodies of the oldest answers first: their keys still prevent a request from being
// repeated. Then it drops the oldest keys. Requests in progress stay.
func (s *Store) makeRoom(ctx context.Context, project string, bytes, keys int64) error {
	if tooMuch, _, largest := s.answers.over(project, bytes, keys); !tooMuch && largest == "" {
		return nil
	}
	s.answers.evicting.Lock()
	defer s.answers.evicting.Unlock()
	for {
		tooMuch, tooMany, of := s.answers.over(project, bytes, keys)
		if tooMuch {
			of = project
		} else if of == "" {
			return nil
		}
		if n, err := s.evict(ctx, of, tooMany); err != nil || n == 0 {
			return err
		}
	}
}

// evict drops the oldest answers of a project, or only their bodies as long as there are any.
func (s *Store) evict(ctx context.Context, project string, entirely bool) (int, error) {
	if !entirely {
		if n, err := s.dropBodies(ctx, project); n > 0 || err != nil {
			return n, err
		}
	}
	return s.deleteAnswers(ctx, `id IN (SELECT id FROM answers WHERE project = $1 AND status <> 0 ORDER BY id LIMIT $2)`, project, evictAtOnce)
}

// dropBodies drops the bodies of a project's oldest answers.
func (s *Store) dropBodies(ctx context.Context, project string) (n int, err error) {
	var freed int64
	err = s.changing(ctx, "make room for answers", light, func(ctx context.Context) error {
		_, err := s.send(ctx, light, []statement{do(`WITH oldest AS (
				SELECT id, size FROM answers WHERE project = $1 AND status <> 0 AND NOT dropped ORDER BY id LIMIT $2 FOR UPDATE),
			thinned AS (UPDATE answers SET dropped = true, header = '{}', body = NULL, size = $3 FROM oldest WHERE answers.id = oldest.id)
			SELECT count(*), coalesce(sum(size - $3), 0)::bigint FROM oldest`, project, evictAtOnce, int64(rowBytes))}, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&n, &freed}, func() error { return nil })
			return err
		})
		return err
	})
	if err != nil {
		return 0, err
	}
	s.answers.add(project, -freed, 0)
	return n, nil
}
