-- +goose Up

-- The servers that share the database, each on a host of its own. An epoch is that of one run
-- of a server: no other has it. Time is the database's.
CREATE TABLE hosts (
    id      text COLLATE "C" PRIMARY KEY,
    epoch   bigint NOT NULL UNIQUE,
    home    text NOT NULL,
    holder  text NOT NULL,
    address text NOT NULL,
    -- What the operator wants of it: up, cordoned or draining.
    wish    text NOT NULL,
    until   timestamptz NOT NULL,
    -- When the others gave it up. It has none of its sandboxes any more.
    dead_at timestamptz,
    joined  timestamptz NOT NULL,
    labels  text NOT NULL,
    figures text NOT NULL
);
-- Work that one of them does for all, by its epoch.
CREATE TABLE host_duties (
    name  text COLLATE "C" PRIMARY KEY,
    epoch bigint NOT NULL
);
-- The authority that signs the certificates by which hosts know each other.
CREATE TABLE host_authority (
    one         integer PRIMARY KEY CHECK (one = 1),
    certificate text NOT NULL,
    sealed_key  bytea NOT NULL
);
-- Who may join, by the hash of a token that is good once.
CREATE TABLE host_tokens (
    hash    text COLLATE "C" PRIMARY KEY,
    expires timestamptz NOT NULL
);

-- Whose a sandbox is. Without a host it is paused, and anybody's who takes it.
ALTER TABLE sandboxes ADD COLUMN host text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN host_epoch bigint NOT NULL DEFAULT 0;
CREATE INDEX sandboxes_host ON sandboxes (host, state) WHERE host <> '';
ALTER TABLE snapshots ADD COLUMN host text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE usage_marks ADD COLUMN host text COLLATE "C" NOT NULL DEFAULT '';

-- server_holds for a database that several share.
-- +goose StatementBegin
CREATE FUNCTION host_holds(mine bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM hosts WHERE epoch = mine AND dead_at IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the other hosts have given this one up' USING ERRCODE = 'BTHY1';
    END IF;
    PERFORM set_config('idle_in_transaction_session_timeout', '15000', true);
END
$$;
-- +goose StatementEnd
-- A change of a sandbox begins with this: it fails where the sandbox is another's.
-- +goose StatementBegin
CREATE FUNCTION host_owns(mine bigint, sandbox text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM sandboxes WHERE id = sandbox AND host_epoch = mine FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM 1 FROM sandboxes WHERE id = sandbox;
        IF FOUND THEN
            RAISE EXCEPTION 'the sandbox is another host''s' USING ERRCODE = 'BTHY2';
        END IF;
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION host_owns(bigint, text);
DROP FUNCTION host_holds(bigint);
ALTER TABLE usage_marks DROP COLUMN host;
ALTER TABLE snapshots DROP COLUMN host;
ALTER TABLE sandboxes DROP COLUMN host, DROP COLUMN host_epoch;
DROP TABLE host_tokens, host_authority, host_duties, hosts;
