package sqlite

import (
	"context"
	"fmt"
	"time"
)

const (
	// evictAtOnce is how many answers one statement evicts, and forgetAtOnce how many expired
	// ones a call deletes.
	evictAtOnce  = 16
	forgetAtOnce = 500
)

// makeRoom evicts until a project, and all projects together, will be within their limits. It
// drops the bodies of the oldest answers first: their keys still prevent a request from being
// repeated. Then it drops the oldest keys.
func (a *answers) makeRoom(ctx context.Context, project string, bytes, keys int64) error {
	over := func(u *answerUse) bool {
		return u.bytes+bytes > a.bounds.ProjectBytes || u.keys+keys > a.bounds.ProjectKeys
	}
	for u := a.used[project]; u != nil && over(u); u = a.used[project] {
		if n, err := a.evict(ctx, project, u.keys+keys > a.bounds.ProjectKeys); err != nil || n == 0 {
			return err
		}
	}
	for a.bytes+bytes > a.bounds.Bytes {
		if n, err := a.evict(ctx, a.largest(), false); err != nil || n == 0 {
			return err
		}
	}
	return nil
}

// largest returns the project that uses the most: it is evicted from first.
func (a *answers) largest() (project string) {
	most := int64(-1)
	for p, u := range a.used {
		if u.bytes > most {
			project, most = p, u.bytes
		}
	}
	return project
}

// evict drops the oldest answers of a project, or only their bodies as long as there are any.
// Requests in progress stay.
func (a *answers) evict(ctx context.Context, project string, whole bool) (int, error) {
	if !whole {
		n, err := a.thin(ctx, project)
		if n > 0 || err != nil {
			return n, err
		}
	}
	return a.delete(ctx, `SELECT id FROM answers WHERE project = ? AND status <> 0 ORDER BY id LIMIT ?`, project, evictAtOnce)
}

// thin drops the bodies of a project's oldest answers.
func (a *answers) thin(ctx context.Context, project string) (n int, err error) {
	const oldest = ` FROM answers WHERE project = ? AND status <> 0 AND dropped = 0 ORDER BY id LIMIT ?`
	var bytes int64
	err = a.db.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(size), 0) FROM (SELECT size`+oldest+`)`, project, evictAtOnce).Scan(&n, &bytes)
	if err == nil && n > 0 {
		_, err = a.db.ExecContext(ctx, `UPDATE answers SET dropped = 1, header = '{}', body = NULL, size = ? WHERE id IN (SELECT id`+oldest+`)`,
			rowBytes, project, evictAtOnce)
	}
	if err != nil {
		return 0, fmt.Errorf("store: make room for answers: %w", err)
	}
	a.add(project, int64(n)*rowBytes-bytes, 0)
	return n, nil
}

// forgetOld deletes some expired answers from time to time. If there are many, the next calls
// continue, so that none takes long.
func (a *answers) forgetOld(ctx context.Context, now time.Time) error {
	if since := now.Sub(a.forgot); since >= 0 && since < forgetEvery {
		return nil
	}
	n, err := a.delete(ctx, `SELECT id FROM answers WHERE created_at < ? ORDER BY created_at LIMIT ?`, nanos(now.Add(-answerLife)), forgetAtOnce)
	if err == nil && n < forgetAtOnce {
		a.forgot = now
	}
	return err
}

// delete deletes the rows that a query selects, and returns how many.
func (a *answers) delete(ctx context.Context, which string, args ...any) (n int, err error) {
	rows, err := a.db.QueryContext(ctx, `DELETE FROM answers WHERE id IN (`+which+`) RETURNING project, size`, args...)
	if err != nil {
		return 0, fmt.Errorf("store: forget answers: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var project string
		var size int64
		if err := rows.Scan(&project, &size); err != nil {
			return n, fmt.Errorf("store: forget answers: %w", err)
		}
		a.add(project, -size, -1)
		n++
	}
	return n, rows.Err()
}
