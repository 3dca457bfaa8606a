package sqlite

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
)

// moveAnswers is the migration that moves answers to a separate file. Those of the last day are
// kept, so that no request is repeated because of an upgrade between an attempt and its retry.
// Of long ones only the keys are kept.
func moveAnswers(a *answers) *goose.Migration {
	const version, longest = 11, 256 << 10
	return goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT project, key, fingerprint, created_at, status, header,
			CASE WHEN length(body) > ? THEN NULL ELSE body END, coalesce(length(body), 0) > ? FROM answers WHERE status <> 0 ORDER BY created_at`, longest, longest)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var project, key, print, header string
			var created, status int64
			var dropped bool
			var body []byte
			if err := rows.Scan(&project, &key, &print, &created, &status, &header, &body, &dropped); err != nil {
				return err
			}
			_, err := a.db.ExecContext(ctx, `INSERT OR IGNORE INTO answers (project, key, fingerprint, created_at, status, dropped, size, header, body)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, project, key, print, created, status, dropped, rowBytes+len(header)+len(body), header, body)
			if err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DROP TABLE answers`); err != nil {
			return err
		}
		return a.count(ctx)
	}}, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE answers (project TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, created_at INTEGER NOT NULL,
			status INTEGER NOT NULL, header TEXT NOT NULL, body BLOB, PRIMARY KEY (project, key)) WITHOUT ROWID;
			CREATE INDEX answers_age ON answers (created_at)`)
		return err
	}})
}
