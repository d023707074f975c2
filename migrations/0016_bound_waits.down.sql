-- Restores the functions of the migrations before.
DO $$
BEGIN
    EXECUTE replace(replace(replace(pg_get_functiondef('belfry.installation_halt()'::regprocedure),
        $old$    held  bigint[] := '{}';
$old$,
        $new$    held  bigint[] := '{}';
    job   bigint;
$new$),
        $old$        LOOP -- a claim that does not end: its run finds the halt
            PERFORM FROM belfry.locks l WHERE l.name = 'claims' FOR UPDATE SKIP LOCKED;
            EXIT WHEN FOUND OR clock_timestamp() >= until;
            PERFORM pg_sleep(0.005);
        END LOOP;$old$,
        $new$        BEGIN
            PERFORM set_config('lock_timeout', '2s', true);
            PERFORM FROM belfry.locks l WHERE l.name = 'claims' FOR UPDATE;
        EXCEPTION WHEN lock_not_available THEN -- a claim does not end: its run finds the halt
        END;$new$),
        $old$            LOOP
                ids := ids || ARRAY(SELECT r.id FROM belfry.jobs r WHERE r.status = 'RUNNING' AND r.id <> ALL (ids) ORDER BY r.id FOR UPDATE SKIP LOCKED);
                held := ARRAY(SELECT r.id FROM belfry.jobs r WHERE r.status = 'RUNNING' AND r.id <> ALL (ids) ORDER BY r.id);
                EXIT WHEN held = '{}' OR clock_timestamp() >= until;
                PERFORM pg_sleep(0.005);
            END LOOP;$old$,
        $new$            FOR job IN SELECT r.id FROM belfry.jobs r WHERE r.status = 'RUNNING' ORDER BY r.id LOOP
                BEGIN
                    PERFORM set_config('lock_timeout', greatest(1, ceil(extract(epoch FROM until - clock_timestamp()) * 1000))::bigint::text, true);
                    PERFORM FROM belfry.jobs r WHERE r.id = job FOR UPDATE;
                    ids := ids || job;
                EXCEPTION WHEN lock_not_available THEN
                    held := held || job;
                END;
            END LOOP;$new$);
    EXECUTE replace(replace(pg_get_functiondef('belfry.activities_enqueue()'::regprocedure),
        $old$    n      bigint;
    part   bigint;
$old$,
        $new$    n      bigint;
$new$),
        $old$        part := belfry.notifications_part(-NEW.id);
        IF belfry.notifications_table(part + 1) IS NULL THEN
            BEGIN
                PERFORM belfry.notifications_ahead(part);
            EXCEPTION WHEN OTHERS THEN -- a later one does; this one needs its own partition only
            END;
        END IF;
$old$, '');
END $$;

CREATE OR REPLACE FUNCTION belfry.next_arrival(notifies boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    part bigint := belfry.notifications_part((SELECT s.last_value FROM belfry.arrivals_seq s));
BEGIN
    IF notifies THEN
        BEGIN
            IF belfry.notifications_table(part + 1) IS NULL OR belfry.notifications_full(part) THEN
                LOCK TABLE belfry.notifications IN SHARE UPDATE EXCLUSIVE MODE;
                part := belfry.notifications_part((SELECT s.last_value FROM belfry.arrivals_seq s));
                IF belfry.notifications_table(part + 1) IS NULL THEN
                    PERFORM belfry.notifications_add(part + 1);
                ELSIF belfry.notifications_full(part) THEN
                    PERFORM setval('belfry.arrivals_seq', belfry.notifications_from(part + 1), false);
                END IF;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'belfry: notifications gets no next partition now: %', SQLERRM; -- the claim does not need it
        END;
    END IF;
    RETURN nextval('belfry.arrivals_seq');
END $$;

DROP FUNCTION belfry.notifications_ahead;
