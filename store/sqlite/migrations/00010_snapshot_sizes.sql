-- +goose Up
ALTER TABLE snapshots ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE snapshots SET bytes = coalesce(json_extract(record, '$.size_bytes'), 0);
-- The sum of a project is read from the index alone.
CREATE INDEX snapshots_bytes ON snapshots (project, bytes);

-- +goose Down
DROP INDEX snapshots_bytes;
ALTER TABLE snapshots DROP COLUMN bytes;
