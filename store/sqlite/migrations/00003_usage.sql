-- +goose Up
-- What is counted, in columns that are the same in every table:
--   vcpu       vCPU-microseconds that sandboxes had
--   cpu        CPU-microseconds that they really used
--   memory     MiB-milliseconds of memory that they had
--   egress     bytes
--   ingress    bytes
--   snapshots  MiB-milliseconds of snapshots
--   templates  MiB-milliseconds of templates
-- Hours and days are counted since the epoch, in UTC.

CREATE TABLE usage_keys (
    id       INTEGER PRIMARY KEY,
    project  TEXT NOT NULL,
    template TEXT NOT NULL,
    sandbox  TEXT NOT NULL,
    labels   TEXT NOT NULL,
    UNIQUE (sandbox, project, template, labels)
);
CREATE TABLE usage_key_labels (
    key   INTEGER NOT NULL,
    label TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (key, label)
) WITHOUT ROWID;
CREATE TABLE usage_projects (
    name TEXT PRIMARY KEY
) WITHOUT ROWID;

-- The records, of which everything below is a sum.
CREATE TABLE usage_hours (
    project TEXT NOT NULL, hour INTEGER NOT NULL, key INTEGER NOT NULL,
    vcpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, egress INTEGER NOT NULL,
    ingress INTEGER NOT NULL, snapshots INTEGER NOT NULL, templates INTEGER NOT NULL,
    PRIMARY KEY (project, hour, key)
) WITHOUT ROWID;
CREATE TABLE usage_days (
    project TEXT NOT NULL, day INTEGER NOT NULL, key INTEGER NOT NULL,
    vcpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, egress INTEGER NOT NULL,
    ingress INTEGER NOT NULL, snapshots INTEGER NOT NULL, templates INTEGER NOT NULL,
    PRIMARY KEY (project, day, key)
) WITHOUT ROWID;
CREATE TABLE usage_hour_totals (
    project TEXT NOT NULL, hour INTEGER NOT NULL, template TEXT NOT NULL,
    vcpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, egress INTEGER NOT NULL,
    ingress INTEGER NOT NULL, snapshots INTEGER NOT NULL, templates INTEGER NOT NULL,
    PRIMARY KEY (project, hour, template)
) WITHOUT ROWID;
CREATE TABLE usage_day_totals (
    project TEXT NOT NULL, day INTEGER NOT NULL, template TEXT NOT NULL,
    vcpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, egress INTEGER NOT NULL,
    ingress INTEGER NOT NULL, snapshots INTEGER NOT NULL, templates INTEGER NOT NULL,
    PRIMARY KEY (project, day, template)
) WITHOUT ROWID;
CREATE TABLE usage_day_labels (
    project TEXT NOT NULL, label TEXT NOT NULL, day INTEGER NOT NULL, value TEXT NOT NULL, template TEXT NOT NULL,
    vcpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, egress INTEGER NOT NULL,
    ingress INTEGER NOT NULL, snapshots INTEGER NOT NULL, templates INTEGER NOT NULL,
    PRIMARY KEY (project, label, day, value, template)
) WITHOUT ROWID;
-- Sandboxes and all that were forked from them, where they have a budget.
CREATE TABLE usage_trees (
    root TEXT PRIMARY KEY,
    vcpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, egress INTEGER NOT NULL,
    ingress INTEGER NOT NULL, snapshots INTEGER NOT NULL, templates INTEGER NOT NULL
) WITHOUT ROWID;

-- Up to when each running sandbox has been counted.
CREATE TABLE usage_marks (
    sandbox TEXT PRIMARY KEY,
    started INTEGER NOT NULL,
    wall    INTEGER NOT NULL,
    boot    TEXT NOT NULL,
    uptime  INTEGER NOT NULL,
    cpu     INTEGER NOT NULL,
    egress  INTEGER NOT NULL,
    ingress INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE usage_state (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE budgets (
    kind    TEXT NOT NULL,
    id      TEXT NOT NULL,
    project TEXT NOT NULL,
    amount  REAL NOT NULL,
    record  TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE budgets;
DROP TABLE usage_state;
DROP TABLE usage_marks;
DROP TABLE usage_trees;
DROP TABLE usage_day_labels;
DROP TABLE usage_day_totals;
DROP TABLE usage_hour_totals;
DROP TABLE usage_days;
DROP TABLE usage_hours;
DROP TABLE usage_projects;
DROP TABLE usage_key_labels;
DROP TABLE usage_keys;
