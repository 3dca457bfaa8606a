-- +goose Up
-- What questions about sandboxes and labels are answered from: the records of a
-- project, as columns (usage_pack.go). They are made of the records, and can be
-- made again. `at` is the day for the grains 'hour' and 'day', and the month. `first`
-- and `last` are the sandboxes of a chunk, where it is in their order.
CREATE TABLE usage_packs (
    grain   TEXT NOT NULL,
    at      INTEGER NOT NULL,
    project TEXT NOT NULL,
    chunk   INTEGER NOT NULL,
    part    TEXT NOT NULL,
    first   TEXT NOT NULL,
    last    TEXT NOT NULL,
    data    BLOB NOT NULL
);
CREATE UNIQUE INDEX usage_packs_at ON usage_packs (grain, at, project, chunk, part);
-- Those that are to be made, for the first time or again.
CREATE TABLE usage_unpacked (
    grain   TEXT NOT NULL,
    at      INTEGER NOT NULL,
    project TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (grain, at, project)
) WITHOUT ROWID;

DROP TABLE usage_month_labels;
DROP TABLE usage_day_labels;
DROP TABLE usage_key_labels;

-- +goose Down
CREATE TABLE usage_key_labels (
    key   INTEGER NOT NULL,
    label TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (key, label)
) WITHOUT ROWID;
CREATE TABLE usage_day_labels (
    project TEXT NOT NULL, label TEXT NOT NULL, day INTEGER NOT NULL, value TEXT NOT NULL, template TEXT NOT NULL,
    vcpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, egress INTEGER NOT NULL,
    ingress INTEGER NOT NULL, snapshots INTEGER NOT NULL, templates INTEGER NOT NULL,
    PRIMARY KEY (project, label, day, value, template)
) WITHOUT ROWID;
CREATE TABLE usage_month_labels (
    project TEXT NOT NULL, label TEXT NOT NULL, month INTEGER NOT NULL, value TEXT NOT NULL, template TEXT NOT NULL,
    vcpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, egress INTEGER NOT NULL,
    ingress INTEGER NOT NULL, snapshots INTEGER NOT NULL, templates INTEGER NOT NULL,
    PRIMARY KEY (project, label, month, value, template)
) WITHOUT ROWID;
INSERT INTO usage_key_labels SELECT k.id, j.key, j.value FROM usage_keys k, json_each(k.labels) j WHERE k.labels <> '';
INSERT INTO usage_day_labels SELECT d.project, l.label, d.day, l.value, k.template, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_days d JOIN usage_keys k ON k.id = d.key JOIN usage_key_labels l ON l.key = d.key GROUP BY 1, 2, 3, 4, 5;
INSERT INTO usage_day_labels SELECT '', label, day, value, template, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_day_labels GROUP BY label, day, value, template;
INSERT INTO usage_month_labels SELECT project, label, strftime('%Y', day * 86400, 'unixepoch') * 12 + strftime('%m', day * 86400, 'unixepoch') - 1 AS month,
    value, template, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_day_labels GROUP BY project, label, month, value, template;
DROP TABLE usage_unpacked;
DROP TABLE usage_packs;
DELETE FROM usage_state WHERE name = 'packed';
