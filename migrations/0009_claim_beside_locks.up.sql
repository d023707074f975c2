-- A job is claimed while another session has locked belfry.notifications. Before, the claim waited 100 ms for the size of
-- the newest partition and was given up, and belfry run ended as if no job were due.

-- The arrival of a job that is claimed for the first time. A job that writes notifications creates the partition after
-- the newest one if it does not exist, or, when the newest one is full, takes the first arrival of the next one: not both,
-- because a claim that is rolled back takes the partition back, and not the arrival. If another session has locked a
-- partition or the table, a later claim does it. When it never succeeds, the newest partition grows (`belfry doctor` warns).
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
