-- +goose Up

-- Each change begins with this: it fails unless the server of the epoch still holds the
-- database, and keeps others from taking it until the change is committed. A renewal of the
-- lease does not wait for it.
-- +goose StatementBegin
CREATE FUNCTION server_holds(mine bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM server_lease WHERE epoch = mine FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another server has taken over this database' USING ERRCODE = 'BTHY1';
    END IF;
    -- Where the server dies in the midst of a change, what it holds is soon free.
    PERFORM set_config('idle_in_transaction_session_timeout', '15000', true);
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION server_holds(bigint);
