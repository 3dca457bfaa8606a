-- +goose Up
CREATE TABLE webhooks (
    id         TEXT PRIMARY KEY,
    project    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    record     TEXT NOT NULL,
    -- How far deliveries have come. It changes with each of them, the record seldom.
    state      TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX webhooks_project ON webhooks (project, created_at);

-- +goose Down
DROP TABLE webhooks;
