-- +goose Up
CREATE TABLE projects (
    id         TEXT PRIMARY KEY,
    plan       TEXT NOT NULL,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;

-- +goose Down
DROP TABLE projects;
