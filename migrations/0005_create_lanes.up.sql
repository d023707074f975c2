-- Lanes that can be paused, and the events of whatever is no job.

-- The timeline of whatever is no job: lanes, schedules, retention.
CREATE TABLE belfry.events (
    id      bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT events_pkey PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    subject text        NOT NULL,
    name    text        NOT NULL DEFAULT '',
    kind    text        NOT NULL,
    actor   text        NOT NULL,
    reason  text        NOT NULL DEFAULT '',
    detail  jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT events_subject_check CHECK (subject IN ('lane', 'schedule', 'retention'))
);
CREATE INDEX events_subject_idx ON belfry.events (subject, name, id);

-- Lanes with something to say about them; a lane needs no row to be used.
CREATE TABLE belfry.lanes (
    name         text CONSTRAINT lanes_pkey PRIMARY KEY,
    paused_at    timestamptz, -- NULL: open
    paused_by    text,
    pause_reason text NOT NULL DEFAULT '',
    CONSTRAINT lanes_name_check CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    CONSTRAINT lanes_paused_check CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);

-- Pausing and opening a lane, by whoever writes: recorded, and the bell rings when
-- a lane opens.
CREATE FUNCTION belfry.lanes_record() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was timestamptz := CASE WHEN TG_OP <> 'INSERT' THEN OLD.paused_at END;
    now timestamptz := CASE WHEN TG_OP <> 'DELETE' THEN NEW.paused_at END;
BEGIN
    IF (was IS NULL) <> (now IS NULL) THEN
        INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
        VALUES ('lane', CASE WHEN TG_OP = 'DELETE' THEN OLD.name ELSE NEW.name END, CASE WHEN now IS NULL THEN 'resumed' ELSE 'paused' END,
            coalesce(nullif(current_setting('belfry.actor', true), ''), session_user), coalesce(current_setting('belfry.reason', true), ''),
            jsonb_build_object('session_user', session_user, 'before', jsonb_build_object('paused_at', was), 'after', jsonb_build_object('paused_at', now)));
        IF now IS NULL THEN
            PERFORM pg_notify('belfry_jobs', '');
        END IF;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER lanes_record AFTER INSERT OR UPDATE OR DELETE ON belfry.lanes
    FOR EACH ROW EXECUTE FUNCTION belfry.lanes_record();

REVOKE EXECUTE ON FUNCTION belfry.lanes_record() FROM PUBLIC;

-- Pauses a lane: no job of it is claimed, and the one that runs goes back to
-- PENDING after its chunk. Pausing a paused lane changes nothing.
CREATE FUNCTION belfry.pause_lane(name text, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.lanes
LANGUAGE plpgsql AS $$
BEGIN
    IF $1 IS NULL OR $1 !~ '^[a-z0-9][a-z0-9_-]{0,62}$' THEN
        PERFORM belfry.reject('lanes', 'name', format('%L is not a lane name', left(coalesce($1, 'null'), 70)) || '; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit');
    END IF;
    PERFORM belfry.act(actor, reason);
    INSERT INTO belfry.lanes AS l (name, paused_at, paused_by, pause_reason)
    VALUES ($1, clock_timestamp(), coalesce($2, session_user), coalesce($3, ''))
        ON CONFLICT ON CONSTRAINT lanes_pkey DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
        WHERE l.paused_at IS NULL;
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT * FROM belfry.lanes l WHERE l.name = $1;
END $$;

-- Opens a paused lane again. No row: the lane was never paused.
CREATE FUNCTION belfry.resume_lane(name text, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.lanes
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM belfry.act(actor, reason);
    UPDATE belfry.lanes l SET paused_at = NULL, paused_by = NULL, pause_reason = '' WHERE l.name = $1 AND l.paused_at IS NOT NULL;
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT * FROM belfry.lanes l WHERE l.name = $1;
END $$;
