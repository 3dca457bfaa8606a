-- +goose Up
CREATE TABLE links (
    id         TEXT PRIMARY KEY,
    project    TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    token_id   TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX links_project ON links (project);
CREATE INDEX links_sandbox ON links (sandbox_id);
CREATE INDEX links_token ON links (token_id);
CREATE INDEX links_expires ON links (expires_at);

-- A link ends with the key that made it, and with its sandbox.
-- +goose StatementBegin
CREATE TRIGGER links_end_with_token AFTER DELETE ON tokens BEGIN
    DELETE FROM links WHERE token_id = old.id;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER links_end_with_sandbox AFTER UPDATE ON sandboxes WHEN new.state IN ('stopped', 'failed') BEGIN
    DELETE FROM links WHERE sandbox_id = new.id;
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER links_end_with_sandbox;
DROP TRIGGER links_end_with_token;
DROP TABLE links;
