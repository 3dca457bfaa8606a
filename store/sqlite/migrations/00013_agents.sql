-- +goose Up
CREATE TABLE agents (
    id         TEXT PRIMARY KEY,
    project    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX agents_project ON agents (project, created_at);
-- What is known of a session is sealed: it holds tokens, and results of tools.
CREATE TABLE agent_sessions (
    attachment TEXT NOT NULL,
    session    TEXT NOT NULL,
    record     BLOB NOT NULL,
    PRIMARY KEY (attachment, session)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE agent_sessions;
DROP TABLE agents;
