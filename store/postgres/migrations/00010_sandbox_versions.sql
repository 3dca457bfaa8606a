-- +goose Up

-- Grows with each write of a sandbox, which states the version that it replaces.
ALTER TABLE sandboxes ADD COLUMN version bigint NOT NULL DEFAULT 1;

-- A write that found another version than it states ends with this, which says what there is.
-- +goose StatementBegin
CREATE FUNCTION sandbox_conflict(sandbox text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', coalesce((SELECT version FROM sandboxes WHERE id = sandbox), 0) USING ERRCODE = 'BTHY5';
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION sandbox_conflict(text);
ALTER TABLE sandboxes DROP COLUMN version;
