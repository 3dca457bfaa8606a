package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy/store"
)

const (
	// answerLife is how long an answer is stored.
	answerLife = store.KeyLife
	// forgetEvery is how often old answers are deleted.
	forgetEvery = time.Minute
	// rowBytes is roughly the size of a row without its header and body.
	rowBytes = 300
)

// WithAnswerBounds limits what is stored for idempotency keys.
func WithAnswerBounds(b store.AnswerBounds) Option { return func(s *Store) { s.answers.bounds = b } }

const answersSchema = `CREATE TABLE IF NOT EXISTS answers (
	id          INTEGER PRIMARY KEY,
	project     TEXT NOT NULL,
	key         TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	created_at  INTEGER NOT NULL,
	status      INTEGER NOT NULL,
	dropped     INTEGER NOT NULL,
	size        INTEGER NOT NULL,
	header      TEXT NOT NULL,
	body        BLOB,
	UNIQUE (project, key)
);
CREATE INDEX IF NOT EXISTS answers_age ON answers (created_at);
CREATE INDEX IF NOT EXISTS answers_oldest ON answers (project, id) WHERE status <> 0;
CREATE INDEX IF NOT EXISTS answers_whole ON answers (project, id) WHERE status <> 0 AND dropped = 0`

// answers stores the answers to requests with idempotency keys. They have a separate file: data
// that callers control must not take space, pages or the write lock from essential data, and
// SQLite does not return space to the disk.
type answers struct {
	mu     sync.Mutex // held while db is used, and guards the following
	db     *sql.DB
	get    *sql.Stmt
	bounds store.AnswerBounds
	used   map[string]*answerUse
	bytes  int64
	// stale is the last row of the previous server: its reservations are void.
	stale  int64
	forgot time.Time // when expired answers were last deleted
}

// answerUse is the size of a project's answers.
type answerUse struct{ bytes, keys int64 }

// answersPath is the file with the answers of a database.
func answersPath(path string) string { return strings.TrimSuffix(path, ".db") + "-answers.db" }

// open does not write to an existing file, so that it works on a full disk.
func (a *answers) open(ctx context.Context, path string) error {
	err := makePrivate(path)
	if err == nil {
		a.db, err = connect(path, "NORMAL", 1)
	}
	if err == nil {
		_, err = a.db.ExecContext(ctx, answersSchema)
	}
	if err == nil {
		a.get, err = a.db.PrepareContext(ctx, `SELECT id, fingerprint, created_at, status, dropped, size, header, body FROM answers
			WHERE project = ? AND key = ?`)
	}
	if err == nil {
		err = a.count(ctx)
	}
	if err != nil {
		return fmt.Errorf("open %s (it contains responses for repeated requests of the last day, and may be deleted): %w", path, err)
	}
	return nil
}

// count reads from the database what is used.
func (a *answers) count(ctx context.Context) error {
	a.used, a.bytes = map[string]*answerUse{}, 0
	if err := a.db.QueryRowContext(ctx, `SELECT coalesce(max(id), 0) FROM answers`).Scan(&a.stale); err != nil {
		return err
	}
	rows, err := a.db.QueryContext(ctx, `SELECT project, sum(size), count(*) FROM answers GROUP BY project`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var project string
		var u answerUse
		if err := rows.Scan(&project, &u.bytes, &u.keys); err != nil {
			return err
		}
		a.used[project] = &u
		a.bytes += u.bytes
	}
	return rows.Err()
}

// add records a change in what a project uses.
func (a *answers) add(project string, bytes, keys int64) {
	u := a.used[project]
	if u == nil {
		u = &answerUse{}
		a.used[project] = u
	}
	u.bytes += bytes
	u.keys += keys
	a.bytes += bytes
	if u.keys <= 0 {
		delete(a.used, project)
	}
}

// answerRow is a stored answer.
type answerRow struct {
	store.Answer
	id, size int64
}

func (a *answers) find(ctx context.Context, project, key string) (*answerRow, error) {
	var x answerRow
	var created int64
	var header string
	err := a.get.QueryRowContext(ctx, project, key).Scan(&x.id, &x.Fingerprint, &created, &x.Status, &x.Dropped, &x.size, &header, &x.Body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(header), &x.Header)
	}
	if err != nil {
		return nil, fmt.Errorf("store: get answer: %w", err)
	}
	x.CreatedAt = time.Unix(0, created).UTC()
	return &x, nil
}

func (a *answers) remove(ctx context.Context, project string, x *answerRow) error {
	if _, err := a.db.ExecContext(ctx, `DELETE FROM answers WHERE id = ?`, x.id); err != nil {
		return fmt.Errorf("store: forget answer: %w", err)
	}
	a.add(project, -x.size, -1)
	return nil
}

// lock locks the answers for a change. The returned context is not cancelled with the caller's.
func (a *answers) lock(ctx context.Context) (context.Context, func(), error) {
	a.mu.Lock()
	if err := ctx.Err(); err != nil {
		a.mu.Unlock()
		return nil, nil, err
	}
	return context.WithoutCancel(ctx), a.mu.Unlock, nil
}

// ReserveAnswer implements store.Store.
func (s *Store) ReserveAnswer(ctx context.Context, projectID, key, fingerprint string) (*store.Answer, error) {
	return s.reserveAnswer(ctx, projectID, key, fingerprint, false)
}

// ReserveOnce implements store.Store.
func (s *Store) ReserveOnce(ctx context.Context, projectID, key, fingerprint string) (*store.Answer, error) {
	return s.reserveAnswer(ctx, projectID, key, fingerprint, true)
}

func (s *Store) reserveAnswer(ctx context.Context, projectID, key, fingerprint string, once bool) (*store.Answer, error) {
	a := &s.answers
	ctx, unlock, err := a.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now := s.now()
	if err := a.forgetOld(ctx, now); err != nil {
		return nil, err
	}
	x, err := a.find(ctx, projectID, key)
	if err != nil {
		return nil, err
	}
	if x != nil {
		lost := x.Status == 0 && x.id <= a.stale
		x.Unknown = lost && x.Dropped
		if (!lost || x.Unknown) && !x.CreatedAt.Before(now.Add(-answerLife)) {
			return &x.Answer, nil
		}
		if err := a.remove(ctx, projectID, x); err != nil {
			return nil, err
		}
	}
	if err := a.makeRoom(ctx, projectID, rowBytes, 1); err != nil {
		return nil, err
	}
	_, err = a.db.ExecContext(ctx, `INSERT INTO answers (project, key, fingerprint, created_at, status, dropped, size, header)
		VALUES (?, ?, ?, ?, 0, ?, ?, '{}')`, projectID, key, fingerprint, nanos(now), once, rowBytes)
	if err != nil {
		return nil, fmt.Errorf("store: reserve answer: %w", err)
	}
	a.add(projectID, rowBytes, 1)
	return nil, nil
}

// StoreAnswer implements store.Store.
func (s *Store) StoreAnswer(ctx context.Context, projectID, key string, x store.Answer) error {
	header, err := json.Marshal(x.Header)
	if err != nil {
		return fmt.Errorf("store: store answer: %w", err)
	}
	a := &s.answers
	ctx, unlock, err := a.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	more := int64(len(header) + len(x.Body))
	if x.Dropped || more > min(a.bounds.ProjectBytes, a.bounds.Bytes) {
		x.Dropped, x.Body, header, more = true, nil, []byte("{}"), 0
	}
	if err := a.makeRoom(ctx, projectID, more, 0); err != nil {
		return err
	}
	r, err := a.db.ExecContext(ctx, `UPDATE answers SET status = ?, dropped = ?, size = ?, header = ?, body = ? WHERE project = ? AND key = ? AND status = 0`,
		x.Status, x.Dropped, rowBytes+more, string(header), x.Body, projectID, key)
	if err != nil {
		return fmt.Errorf("store: store answer: %w", err)
	}
	n, err := r.RowsAffected()
	if err == nil && n == 0 {
		err = errors.New("the key is not reserved")
	}
	if err != nil {
		return fmt.Errorf("store: store answer: %w", err)
	}
	a.add(projectID, more, 0)
	return nil
}

// ForgetAnswer implements store.Store.
func (s *Store) ForgetAnswer(ctx context.Context, projectID, key string) error {
	a := &s.answers
	ctx, unlock, err := a.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	x, err := a.find(ctx, projectID, key)
	if x == nil || err != nil {
		return err
	}
	return a.remove(ctx, projectID, x)
}
