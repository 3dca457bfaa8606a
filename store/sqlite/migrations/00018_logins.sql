-- +goose Up
-- Browsers that have logged in, and codes with which one can, once.
CREATE TABLE logins (
    hash       TEXT PRIMARY KEY,
    project    TEXT NOT NULL,
    token_id   TEXT NOT NULL,
    code       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX logins_token ON logins (token_id, created_at);

-- +goose Down
DROP TABLE logins;
