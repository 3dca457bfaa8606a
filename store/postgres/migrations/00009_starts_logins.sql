-- +goose Up

-- How quickly a project makes sandboxes, on all hosts: what it may make at once, as of a time of
-- the database's. Who starts a sandbox of a project with a bound holds its row to the commit, so
-- that each counts those before it.
CREATE TABLE project_starts (
    project text COLLATE "C" PRIMARY KEY,
    may     double precision NOT NULL,
    at      timestamptz NOT NULL
);
CREATE INDEX sandboxes_live ON sandboxes (project)
    WHERE NOT pooled AND state IN ('starting', 'running', 'pausing', 'resuming', 'stopping');

-- The start of a sandbox begins with this. It fails where its project has as many as it may on all
-- hosts (most), or makes them too fast (minute, of which 0 is no bound), and says how many run, or
-- for how many seconds to wait. A start that was made already is not counted twice. A project begins
-- with all that it may, also where its first start has no bound.
-- +goose StatementBegin
CREATE FUNCTION host_starts(of_project text, sandbox text, most bigint, minute bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    live bigint;
    left_now double precision;
BEGIN
    INSERT INTO project_starts VALUES (of_project, 'infinity', clock_timestamp()) ON CONFLICT DO NOTHING;
    SELECT least(minute, may + extract(epoch FROM clock_timestamp() - at) * minute / 60) INTO left_now
        FROM project_starts WHERE project = of_project FOR UPDATE;
    PERFORM 1 FROM sandboxes WHERE id = sandbox AND NOT pooled AND state IN ('starting', 'running', 'resuming');
    IF FOUND THEN
        RETURN;
    END IF;
    IF most IS NOT NULL THEN
        SELECT count(*) INTO live FROM sandboxes WHERE project = of_project AND NOT pooled
            AND state IN ('starting', 'running', 'pausing', 'resuming', 'stopping') AND id <> sandbox;
        IF live >= most THEN
            RAISE EXCEPTION '%', live USING ERRCODE = 'BTHY3';
        END IF;
    END IF;
    IF minute > 0 THEN
        IF left_now < 1 THEN
            RAISE EXCEPTION '%', (1 - left_now) * 60 / minute USING ERRCODE = 'BTHY4';
        END IF;
        UPDATE project_starts SET may = left_now - 1, at = clock_timestamp() WHERE project = of_project;
    END IF;
END
$$;
-- +goose StatementEnd

-- Browsers that have logged in, and codes with which one can, once.
CREATE TABLE logins (
    hash       text COLLATE "C" PRIMARY KEY,
    project    text COLLATE "C" NOT NULL,
    token_id   text COLLATE "C" NOT NULL,
    code       boolean NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX logins_token ON logins (token_id, created_at);

-- +goose Down
DROP TABLE logins;
DROP FUNCTION host_starts(text, text, bigint, bigint);
DROP INDEX sandboxes_live;
DROP TABLE project_starts;
