-- +goose Up

-- What hosts that share a database have in common. A server with this store is alone: the rows
-- are kept only on their way from one database to another.
CREATE TABLE template_names (
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    tag        TEXT NOT NULL,
    digest     TEXT NOT NULL,
    version    INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    record     TEXT NOT NULL,
    PRIMARY KEY (project, name, tag)
);
CREATE TABLE shared_trees (
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    host        TEXT NOT NULL,
    bytes       INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    stored_at   INTEGER,
    unneeded_at INTEGER,
    record      TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);

-- +goose Down
DROP TABLE shared_trees;
DROP TABLE template_names;
