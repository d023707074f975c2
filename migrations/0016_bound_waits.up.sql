-- A halt ends in two seconds under any row locks, and no notification is refused for want of a partition.

-- As before (0005), but it asks for locks again and again instead of waiting in their queue: sessions that share the lock of a
-- row, each for less than the limit and one before the other ends, kept one wait going without end. A chunk keeps its job's
-- row from its last statement to its COMMIT only, so that a halt finds it free.
DO $$
BEGIN
    EXECUTE replace(replace(replace(pg_get_functiondef('belfry.installation_halt()'::regprocedure),
        $old$    job   bigint;
$old$, ''),
        $old$        BEGIN
            PERFORM set_config('lock_timeout', '2s', true);
            PERFORM FROM belfry.locks l WHERE l.name = 'claims' FOR UPDATE;
        EXCEPTION WHEN lock_not_available THEN -- a claim does not end: its run finds the halt
        END;$old$,
        $new$        LOOP -- a claim that does not end: its run finds the halt
            PERFORM FROM belfry.locks l WHERE l.name = 'claims' FOR UPDATE SKIP LOCKED;
            EXIT WHEN FOUND OR clock_timestamp() >= until;
            PERFORM pg_sleep(0.005);
        END LOOP;$new$),
        $old$            FOR job IN SELECT r.id FROM belfry.jobs r WHERE r.status = 'RUNNING' ORDER BY r.id LOOP
                BEGIN
                    PERFORM set_config('lock_timeout', greatest(1, ceil(extract(epoch FROM until - clock_timestamp()) * 1000))::bigint::text, true);
                    PERFORM FROM belfry.jobs r WHERE r.id = job FOR UPDATE;
                    ids := ids || job;
                EXCEPTION WHEN lock_not_available THEN
                    held := held || job;
                END;
            END LOOP;$old$,
        $new$            LOOP
                ids := ids || ARRAY(SELECT r.id FROM belfry.jobs r WHERE r.status = 'RUNNING' AND r.id <> ALL (ids) ORDER BY r.id FOR UPDATE SKIP LOCKED);
                held := ARRAY(SELECT r.id FROM belfry.jobs r WHERE r.status = 'RUNNING' AND r.id <> ALL (ids) ORDER BY r.id);
                EXIT WHEN held = '{}' OR clock_timestamp() >= until;
                PERFORM pg_sleep(0.005);
            END LOOP;$new$);
END $$;

-- Creates the partitions of an arrival and of the one after it that do not exist. It fails with 55P03 if another session
-- keeps the table from new partitions.
CREATE FUNCTION belfry.notifications_ahead(part bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    LOCK TABLE belfry.notifications IN SHARE UPDATE EXCLUSIVE MODE;
    FOR n IN 0..1 LOOP
        IF belfry.notifications_table(part + n) IS NULL THEN
            PERFORM belfry.notifications_add(part + n);
        END IF;
    END LOOP;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.notifications_ahead(bigint) FROM PUBLIC;

-- As before (0009), but it also creates the partition of the arrival itself: activities and push jobs had passed it.
CREATE OR REPLACE FUNCTION belfry.next_arrival(notifies boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    part bigint := belfry.notifications_part((SELECT s.last_value + s.is_called::integer FROM belfry.arrivals_seq s));
BEGIN
    IF notifies THEN
        BEGIN
            IF belfry.notifications_table(part) IS NULL OR belfry.notifications_table(part + 1) IS NULL THEN
                PERFORM belfry.notifications_ahead(part);
            ELSIF belfry.notifications_full(part) THEN
                LOCK TABLE belfry.notifications IN SHARE UPDATE EXCLUSIVE MODE;
                part := belfry.notifications_part((SELECT s.last_value FROM belfry.arrivals_seq s));
                IF belfry.notifications_table(part + 1) IS NOT NULL AND belfry.notifications_full(part) THEN
                    PERFORM setval('belfry.arrivals_seq', belfry.notifications_from(part + 1), false);
                END IF;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'belfry: notifications gets no next partition now: %', SQLERRM; -- the claim does not need it
        END;
    END IF;
    RETURN nextval('belfry.arrivals_seq');
END $$;

-- As before (0005), and the first activity of a partition creates the next one: a database may have no inbox job.
DO $$
BEGIN
    EXECUTE replace(replace(pg_get_functiondef('belfry.activities_enqueue()'::regprocedure),
        $old$    n      bigint;
BEGIN$old$,
        $new$    n      bigint;
    part   bigint;
BEGIN$new$),
        $old$    IF NEW.inbox THEN
        INSERT$old$,
        $new$    IF NEW.inbox THEN
        part := belfry.notifications_part(-NEW.id);
        IF belfry.notifications_table(part + 1) IS NULL THEN
            BEGIN
                PERFORM belfry.notifications_ahead(part);
            EXCEPTION WHEN OTHERS THEN -- a later one does; this one needs its own partition only
            END;
        END IF;
        INSERT$new$);
END $$;
