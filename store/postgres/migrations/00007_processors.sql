-- +goose Up
-- What each host's processor can do, as JSON.
ALTER TABLE hosts ADD COLUMN processor text NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE hosts DROP COLUMN processor;
