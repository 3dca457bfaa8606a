package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

var _ store.Shared = (*Store)(nil)

// namingLock serialises changes of template names until they are committed.
const namingLock = 0x626f746879_6e

// TemplateNames implements store.Shared.
func (s *Store) TemplateNames(ctx context.Context, after int64) (names []store.TemplateName, newest int64, err error) {
	names, err = list(ctx, s, "list names of templates", `SELECT project, name, tag, digest, version, record FROM template_names WHERE version > $1 ORDER BY version`,
		[]any{after}, func(row pgx.CollectableRow) (n store.TemplateName, err error) {
			var manifest string
			err = row.Scan(&n.Project, &n.Name, &n.Tag, &n.Digest, &n.Version, &manifest)
			n.Manifest = []byte(manifest)
			return n, err
		})
	newest = after
	if len(names) > 0 {
		newest = names[len(names)-1].Version
	}
	return names, newest, err
}

// TemplateVersion implements store.Shared.
func (s *Store) TemplateVersion(ctx context.Context) (int64, error) {
	v, _, err := first(ctx, s, "look for changed names of templates", `SELECT coalesce(max(version), 0) FROM template_names`, nil, pgx.RowTo[int64])
	return v, err
}

// NameTemplates implements store.Shared.
func (s *Store) NameTemplates(ctx context.Context, names []store.TemplateName, images []store.Tree, how store.Naming) error {
	return s.transaction(ctx, "name templates", whole, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(namingLock)); err != nil {
			return err
		}
		var last int64
		if err := tx.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM template_names`).Scan(&last); err != nil {
			return err
		}
		b := &pgx.Batch{}
		for _, i := range images {
			queueTree(b, i)
		}
		now := nanos(s.now())
		for k, n := range names {
			condition := ``
			args := []any{n.Project, n.Name, n.Tag, n.Digest, last + int64(k) + 1, now, string(n.Manifest)}
			if how.Unchanged {
				condition = ` WHERE t.version = $8`
				args = append(args, n.Version)
			}
			if how.Unchanged && n.Version == 0 {
				b.Queue(`INSERT INTO template_names VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`, clean(args[:7])...)
				continue
			}
			b.Queue(`INSERT INTO template_names AS t VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (project, name, tag)
				DO UPDATE SET digest = excluded.digest, version = excluded.version, changed_at = excluded.changed_at, record = excluded.record`+condition, clean(args)...)
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil || how.Quota == 0 || len(names) == 0 {
			return err
		}
		return withinQuota(ctx, tx, names[0].Project, images, how.Quota)
	})
}

// withinQuota refuses names whose images take up more, with the others of their project, than they
// may. The caller holds namingLock, so that no other host is about to add one.
func withinQuota(ctx context.Context, tx pgx.Tx, project string, images []store.Tree, quota int64) error {
	var used int64
	err := tx.QueryRow(ctx, `SELECT coalesce(sum(t.bytes), 0)::bigint FROM (SELECT DISTINCT name, digest FROM template_names WHERE project = $1 AND digest <> '') n
		JOIN shared_trees t ON t.kind = '`+store.TreeTemplates+`' AND 'sha256:' || t.name = n.digest`, cleanText(project)).Scan(&used)
	if err != nil || used <= quota {
		return err
	}
	for _, i := range images {
		used -= i.Bytes
	}
	return &store.OverQuota{Used: used}
}

func queueTree(b *pgx.Batch, t store.Tree) {
	b.Queue(`INSERT INTO shared_trees (kind, name, host, bytes, created_at, record) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (kind, name) DO UPDATE SET unneeded_at = NULL`, clean([]any{t.Kind, t.Name, t.Host, t.Bytes, nanos(t.At), string(t.Record)})...)
}

const treeColumns = `kind, name, host, bytes, created_at, stored_at, unneeded_at, record`

func scanTree(row pgx.CollectableRow) (t store.Tree, err error) {
	var created int64
	var stored, unneeded *int64
	var text string
	err = row.Scan(&t.Kind, &t.Name, &t.Host, &t.Bytes, &created, &stored, &unneeded, &text)
	t.At, t.StoredAt, t.UnneededAt, t.Record = time.Unix(0, created).UTC(), timeOrNil(stored), timeOrNil(unneeded), []byte(text)
	return t, err
}

func timeOrNil(ns *int64) *time.Time {
	if ns == nil {
		return nil
	}
	t := time.Unix(0, *ns).UTC()
	return &t
}

// Tree implements store.Shared.
func (s *Store) Tree(ctx context.Context, kind, name string) (*store.Tree, error) {
	t, found, err := first(ctx, s, "find a tree", `SELECT `+treeColumns+` FROM shared_trees WHERE kind = $1 AND name = $2`, []any{kind, name}, scanTree)
	if err == nil && !found {
		return nil, bothy.Errorf(bothy.CodeNotFound, "no host has published %s/%s", kind, name)
	}
	return &t, err
}

// Trees implements store.Shared.
func (s *Store) Trees(ctx context.Context, kind string) ([]store.Tree, error) {
	return list(ctx, s, "list trees", `SELECT `+treeColumns+` FROM shared_trees WHERE kind = $1 ORDER BY created_at DESC, name`, []any{kind}, scanTree)
}

// replaces is the condition under which a published tree replaces the one with the same name:
// it is the host's own, or no live host or object storage has it.
const replaces = `(t.host = excluded.host OR t.stored_at IS NULL AND (t.unneeded_at IS NOT NULL
	OR NOT EXISTS (SELECT 1 FROM hosts h WHERE h.id = t.host AND h.dead_at IS NULL)))`

// PutTree implements store.Shared.
func (s *Store) PutTree(ctx context.Context, t store.Tree) error {
	_, err := s.change(ctx, "record a tree", whole, do(`INSERT INTO shared_trees AS t (kind, name, host, bytes, created_at, record) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (kind, name) DO UPDATE SET unneeded_at = NULL,
			host = CASE WHEN `+replaces+` THEN excluded.host ELSE t.host END,
			bytes = CASE WHEN `+replaces+` THEN excluded.bytes ELSE t.bytes END,
			record = CASE WHEN `+replaces+` THEN excluded.record ELSE t.record END`, t.Kind, t.Name, t.Host, t.Bytes, nanos(t.At), string(t.Record)))
	return err
}

// SetTreeStored implements store.Shared.
func (s *Store) SetTreeStored(ctx context.Context, kind, name string, at *time.Time) error {
	_, err := s.change(ctx, "record that a tree is stored", whole, do(`UPDATE shared_trees SET stored_at = $3 WHERE kind = $1 AND name = $2`, kind, name, nanosOrNull(at)))
	return err
}

// SetTreeNeeded implements store.Shared.
func (s *Store) SetTreeNeeded(ctx context.Context, kind, name string, needed bool) error {
	since := nanos(s.now())
	_, err := s.change(ctx, "record that a tree is needed", whole,
		do(`UPDATE shared_trees SET unneeded_at = CASE WHEN $3 THEN NULL ELSE coalesce(unneeded_at, $4) END WHERE kind = $1 AND name = $2`, kind, name, needed, since))
	return err
}

// MarkTreeDeleting implements store.Shared.
func (s *Store) MarkTreeDeleting(ctx context.Context, kind, name string, before time.Time) (bool, error) {
	n, err := s.change(ctx, "have a tree removed", whole, do(`UPDATE shared_trees SET stored_at = 0
		WHERE kind = $1 AND name = $2 AND stored_at IS NOT NULL AND (unneeded_at <= $3 OR stored_at = 0)`, kind, name, nanos(before)))
	return n == 1, err
}

// ForgetTemplateNames deletes all template names: a server without a cluster has them in its
// folder.
func (s *Store) ForgetTemplateNames(ctx context.Context) error {
	_, err := s.change(ctx, "forget names of templates", whole, do(`DELETE FROM template_names`))
	return err
}
