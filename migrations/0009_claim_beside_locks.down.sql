-- Restores the function of 0005_create_outbox.
CREATE OR REPLACE FUNCTION belfry.next_arrival(notifies boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    part bigint := belfry.notifications_part((SELECT s.last_value FROM belfry.arrivals_seq s));
BEGIN
    IF notifies AND (belfry.notifications_table(part + 1) IS NULL OR belfry.notifications_full(part)) THEN
        BEGIN
            LOCK TABLE belfry.notifications IN SHARE UPDATE EXCLUSIVE MODE;
            part := belfry.notifications_part((SELECT s.last_value FROM belfry.arrivals_seq s));
            IF belfry.notifications_table(part + 1) IS NULL THEN
                PERFORM belfry.notifications_add(part + 1);
            ELSIF belfry.notifications_full(part) THEN
                PERFORM setval('belfry.arrivals_seq', belfry.notifications_from(part + 1), false);
            END IF;
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'belfry: notifications gets no next partition now: %', SQLERRM; -- the claim does not need it
        END;
    END IF;
    RETURN nextval('belfry.arrivals_seq');
END $$;
