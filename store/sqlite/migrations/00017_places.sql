-- +goose Up
-- Places in object storage: the one that is used, and those that are about to be marked.
CREATE TABLE places (
    id         TEXT PRIMARY KEY,
    location   TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    used       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX places_used ON places (used) WHERE used = 1;

-- +goose Down
DROP TABLE places;
