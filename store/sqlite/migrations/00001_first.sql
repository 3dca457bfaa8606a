-- +goose Up
CREATE TABLE sandboxes (
    id         TEXT PRIMARY KEY,
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    state      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER,
    pooled     INTEGER NOT NULL,
    metadata   TEXT NOT NULL,
    record     TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX sandboxes_newest ON sandboxes (project, created_at DESC, id DESC);
CREATE INDEX sandboxes_state ON sandboxes (state, ended_at);

CREATE TABLE snapshots (
    id         TEXT PRIMARY KEY,
    project    TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX snapshots_newest ON snapshots (project, created_at DESC, id DESC);
CREATE INDEX snapshots_sandbox ON snapshots (sandbox_id);

CREATE TABLE tokens (
    id           TEXT PRIMARY KEY,
    project      TEXT NOT NULL,
    hash         TEXT NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    record       TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX tokens_project ON tokens (project, created_at, id);

CREATE TABLE events (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    time    INTEGER NOT NULL,
    record  TEXT NOT NULL
);
CREATE INDEX events_project ON events (project, id);
CREATE INDEX events_time ON events (time);

CREATE TABLE answers (
    project     TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    status      INTEGER NOT NULL,
    header      TEXT NOT NULL,
    body        BLOB,
    PRIMARY KEY (project, key)
) WITHOUT ROWID;
CREATE INDEX answers_age ON answers (created_at);

-- +goose Down
DROP TABLE answers;
DROP TABLE events;
DROP TABLE tokens;
DROP TABLE snapshots;
DROP TABLE sandboxes;
