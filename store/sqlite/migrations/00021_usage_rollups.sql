-- +goose Up
-- Reports are summed up from the records by hour, day and month. The sums of all projects are those
-- of each.
CREATE TABLE usage_months (
    project TEXT NOT NULL, month INTEGER NOT NULL, key INTEGER NOT NULL,
    vcpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, egress INTEGER NOT NULL,
    ingress INTEGER NOT NULL, snapshots INTEGER NOT NULL, templates INTEGER NOT NULL,
    PRIMARY KEY (project, month, key)
) WITHOUT ROWID;
INSERT INTO usage_months SELECT project, strftime('%Y', day * 86400, 'unixepoch') * 12 + strftime('%m', day * 86400, 'unixepoch') - 1 AS month,
    key, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_days GROUP BY project, month, key;
DELETE FROM usage_hour_totals WHERE project = '';
DELETE FROM usage_day_totals WHERE project = '';
DELETE FROM usage_month_totals WHERE project = '';
DROP TABLE usage_unpacked;
DROP TABLE usage_packs;
DELETE FROM usage_state WHERE name = 'packed';

-- +goose Down
CREATE TABLE usage_packs (
    grain TEXT NOT NULL, at INTEGER NOT NULL, project TEXT NOT NULL, chunk INTEGER NOT NULL,
    part TEXT NOT NULL, first TEXT NOT NULL, last TEXT NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX usage_packs_at ON usage_packs (grain, at, project, chunk, part);
CREATE TABLE usage_unpacked (
    grain TEXT NOT NULL, at INTEGER NOT NULL, project TEXT NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (grain, at, project)
) WITHOUT ROWID;
INSERT INTO usage_hour_totals SELECT '', hour, template, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_hour_totals GROUP BY hour, template;
INSERT INTO usage_day_totals SELECT '', day, template, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_day_totals GROUP BY day, template;
INSERT INTO usage_month_totals SELECT '', month, template, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_month_totals GROUP BY month, template;
DROP TABLE usage_months;
