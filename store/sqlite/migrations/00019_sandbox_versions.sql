-- +goose Up
-- Grows with each write of a sandbox, which states the version that it replaces.
ALTER TABLE sandboxes ADD COLUMN version INTEGER NOT NULL DEFAULT 1;

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN version;
