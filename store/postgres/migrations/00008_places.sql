-- +goose Up
-- Places in object storage: the one that is used, and those that are about to be marked.
CREATE TABLE places (
    id         text COLLATE "C" PRIMARY KEY,
    location   text NOT NULL,
    created_at bigint NOT NULL,
    used       boolean NOT NULL
);
CREATE UNIQUE INDEX places_used ON places (used) WHERE used;

-- +goose Down
DROP TABLE places;
