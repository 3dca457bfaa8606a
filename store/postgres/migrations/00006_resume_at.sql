-- +goose Up

-- When a sandbox that lost its host is to be resumed; most never are.
ALTER TABLE sandboxes ADD COLUMN resume_at bigint;
CREATE INDEX sandboxes_resume ON sandboxes (resume_at) WHERE resume_at IS NOT NULL;

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN resume_at;
