-- +goose Up

-- The idempotency key of the request that created a sandbox, until that has ended.
ALTER TABLE sandboxes ADD COLUMN made_key text;
CREATE UNIQUE INDEX sandboxes_made_key ON sandboxes (project, made_key) WHERE made_key IS NOT NULL;

-- +goose Down
DROP INDEX sandboxes_made_key;
ALTER TABLE sandboxes DROP COLUMN made_key;
