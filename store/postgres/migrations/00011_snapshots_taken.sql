-- +goose Up

-- When a snapshot was taken, by the database's clock in nanoseconds; NULL of those that an earlier
-- server recorded. created_at is by the clock of the host that took it.
ALTER TABLE snapshots ADD COLUMN taken_at bigint;

-- +goose Down
ALTER TABLE snapshots DROP COLUMN taken_at;
