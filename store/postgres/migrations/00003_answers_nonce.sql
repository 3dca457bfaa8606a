-- +goose Up
-- By which a call knows its own reservation, when it has to ask twice.
ALTER TABLE answers ADD COLUMN nonce text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE answers DROP COLUMN nonce;
