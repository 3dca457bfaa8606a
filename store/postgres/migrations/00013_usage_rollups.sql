-- +goose Up
-- Sums of usage_hours by day and month, counted since the epoch and from year 0. The database keeps
-- them, so that they are right whichever version of the program writes usage.
CREATE TABLE usage_days (
    day       bigint NOT NULL,
    key       bigint NOT NULL,
    vcpu      bigint NOT NULL,
    cpu       bigint NOT NULL,
    memory    bigint NOT NULL,
    egress    bigint NOT NULL,
    ingress   bigint NOT NULL,
    snapshots bigint NOT NULL,
    templates bigint NOT NULL,
    PRIMARY KEY (key, day)
);
CREATE INDEX usage_days_day ON usage_days (day);
CREATE TABLE usage_months (
    month     bigint NOT NULL,
    key       bigint NOT NULL,
    vcpu      bigint NOT NULL,
    cpu       bigint NOT NULL,
    memory    bigint NOT NULL,
    egress    bigint NOT NULL,
    ingress   bigint NOT NULL,
    snapshots bigint NOT NULL,
    templates bigint NOT NULL,
    PRIMARY KEY (key, month)
);
CREATE INDEX usage_months_month ON usage_months (month);

-- +goose StatementBegin
CREATE FUNCTION usage_month(hour bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(year FROM at) * 12 + extract(month FROM at) - 1)::bigint FROM (SELECT to_timestamp(hour * 3600) AT TIME ZONE 'UTC' AS at) t
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION usage_sum() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    n usage_hours := NEW;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        n.vcpu := NEW.vcpu - OLD.vcpu;
        n.cpu := NEW.cpu - OLD.cpu;
        n.memory := NEW.memory - OLD.memory;
        n.egress := NEW.egress - OLD.egress;
        n.ingress := NEW.ingress - OLD.ingress;
        n.snapshots := NEW.snapshots - OLD.snapshots;
        n.templates := NEW.templates - OLD.templates;
    END IF;
    INSERT INTO usage_days AS t (day, key, vcpu, cpu, memory, egress, ingress, snapshots, templates)
        VALUES (n.hour / 24, n.key, n.vcpu, n.cpu, n.memory, n.egress, n.ingress, n.snapshots, n.templates)
        ON CONFLICT (key, day) DO UPDATE SET vcpu = t.vcpu + excluded.vcpu, cpu = t.cpu + excluded.cpu, memory = t.memory + excluded.memory, egress = t.egress + excluded.egress, ingress = t.ingress + excluded.ingress, snapshots = t.snapshots + excluded.snapshots, templates = t.templates + excluded.templates;
    INSERT INTO usage_months AS t (month, key, vcpu, cpu, memory, egress, ingress, snapshots, templates)
        VALUES (usage_month(n.hour), n.key, n.vcpu, n.cpu, n.memory, n.egress, n.ingress, n.snapshots, n.templates)
        ON CONFLICT (key, month) DO UPDATE SET vcpu = t.vcpu + excluded.vcpu, cpu = t.cpu + excluded.cpu, memory = t.memory + excluded.memory, egress = t.egress + excluded.egress, ingress = t.ingress + excluded.ingress, snapshots = t.snapshots + excluded.snapshots, templates = t.templates + excluded.templates;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
-- Creating the trigger waits for who is writing usage, and stops others until all is summed up.
CREATE TRIGGER usage_sum AFTER INSERT OR UPDATE ON usage_hours FOR EACH ROW EXECUTE FUNCTION usage_sum();
INSERT INTO usage_days (day, key, vcpu, cpu, memory, egress, ingress, snapshots, templates)
    SELECT hour / 24, key, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates) FROM usage_hours GROUP BY 1, 2;
INSERT INTO usage_months (month, key, vcpu, cpu, memory, egress, ingress, snapshots, templates)
    SELECT usage_month(day * 24), key, sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates) FROM usage_days GROUP BY 1, 2;

-- +goose Down
DROP TRIGGER usage_sum ON usage_hours;
DROP FUNCTION usage_sum;
DROP FUNCTION usage_month;
DROP TABLE usage_months, usage_days;
