-- +goose Up
CREATE TABLE audit (
    id         INTEGER PRIMARY KEY,
    time       INTEGER NOT NULL,
    project    TEXT NOT NULL,
    token_id   TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    action     TEXT NOT NULL,
    status     INTEGER NOT NULL,
    record     TEXT NOT NULL,
    hash       TEXT NOT NULL
);
CREATE INDEX audit_project ON audit (project, id);
CREATE INDEX audit_sandbox ON audit (sandbox_id, id);
CREATE INDEX audit_time ON audit (time);

-- What the first record that is still there follows, and which is the last.
CREATE TABLE audit_ends (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    after_id   INTEGER NOT NULL,
    after_hash TEXT NOT NULL,
    last_id    INTEGER NOT NULL,
    last_hash  TEXT NOT NULL
);
INSERT INTO audit_ends VALUES (1, 0, '', 0, '');

-- +goose Down
DROP TABLE audit_ends;
DROP TABLE audit;
