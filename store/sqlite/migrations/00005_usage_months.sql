-- +goose Up
-- Sums of the sums, for questions about long times. Months are counted from year
-- 0. In the tables of sums the project '' stands for all of them together.
CREATE TABLE usage_month_totals (
    project TEXT NOT NULL, month INTEGER NOT NULL, template TEXT NOT NULL,
    vcpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, egress INTEGER NOT NULL,
    ingress INTEGER NOT NULL, snapshots INTEGER NOT NULL, templates INTEGER NOT NULL,
    PRIMARY KEY (project, month, template)
) WITHOUT ROWID;
CREATE TABLE usage_month_labels (
    project TEXT NOT NULL, label TEXT NOT NULL, month INTEGER NOT NULL, value TEXT NOT NULL, template TEXT NOT NULL,
    vcpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, egress INTEGER NOT NULL,
    ingress INTEGER NOT NULL, snapshots INTEGER NOT NULL, templates INTEGER NOT NULL,
    PRIMARY KEY (project, label, month, value, template)
) WITHOUT ROWID;

INSERT INTO usage_hour_totals SELECT '', hour, template, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_hour_totals GROUP BY hour, template;
INSERT INTO usage_day_totals SELECT '', day, template, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_day_totals GROUP BY day, template;
INSERT INTO usage_day_labels SELECT '', label, day, value, template, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_day_labels GROUP BY label, day, value, template;
INSERT INTO usage_month_totals SELECT project, strftime('%Y', day * 86400, 'unixepoch') * 12 + strftime('%m', day * 86400, 'unixepoch') - 1 AS month,
    template, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_day_totals GROUP BY project, month, template;
INSERT INTO usage_month_labels SELECT project, label, strftime('%Y', day * 86400, 'unixepoch') * 12 + strftime('%m', day * 86400, 'unixepoch') - 1 AS month,
    value, template, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)
    FROM usage_day_labels GROUP BY project, label, month, value, template;

-- +goose Down
DROP TABLE usage_month_labels;
DROP TABLE usage_month_totals;
DELETE FROM usage_hour_totals WHERE project = '';
DELETE FROM usage_day_totals WHERE project = '';
DELETE FROM usage_day_labels WHERE project = '';
