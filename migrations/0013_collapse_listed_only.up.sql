-- A notification counts only listed ones with its collapse key. Before, those of a category that the person had left in
-- every medium were counted as well, and no message was sent, although the person could not see them and thus not read them.

-- The notification and the message of an activity, in the same transaction; the message is due when that commits.
-- A deliver_at in the past does not put it before the messages that wait. A notification with a collapse key
-- takes the place of the channel's listed, unread ones with this key, and sends no message: the first one did. It waits
-- for no other transaction, and leaves alone what another one collapses; the next collapses both.
CREATE OR REPLACE FUNCTION belfry.activities_enqueue() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unread bigint[];
    n      bigint;
BEGIN
    IF NEW.collapse_key IS NOT NULL
       AND NOT EXISTS (SELECT FROM belfry.opt_outs o WHERE o.channel_id = NEW.channel_id AND o.medium = '*' AND o.category IN ('*', NEW.category) AND o.opted_out_at <= NEW.created_at) THEN
        unread := ARRAY(SELECT f.arrival
                          FROM (SELECT a.id, a.category, a.created_at FROM belfry.activities a
                                 WHERE a.channel_id = NEW.channel_id AND a.collapse_key = NEW.collapse_key AND a.id <> NEW.id ORDER BY a.id LIMIT 20) a
                          JOIN belfry.notifications f ON f.channel_id = NEW.channel_id AND f.arrival = -a.id
                         WHERE f.archived_at IS NULL AND f.withdrawn_at IS NULL AND NOT belfry.inbox_is_read(f.channel_id, f.arrival, f.read_at)
                           AND NOT EXISTS (SELECT FROM belfry.opt_outs o WHERE o.channel_id = NEW.channel_id AND o.medium = '*' AND o.category IN ('*', a.category) AND o.opted_out_at <= a.created_at));
        WITH gone AS (
            DELETE FROM belfry.notifications f
             WHERE f.channel_id = NEW.channel_id
               AND f.arrival = ANY (ARRAY(SELECT k.arrival FROM belfry.notifications k WHERE k.channel_id = NEW.channel_id AND k.arrival = ANY (unread) FOR UPDATE SKIP LOCKED))
            RETURNING f.collapsed)
        SELECT sum(coalesce(g.collapsed, 1)) INTO n FROM gone g;
    END IF;
    IF NEW.inbox THEN
        INSERT INTO belfry.notifications (channel_id, arrival, collapsed) VALUES (NEW.channel_id, -NEW.id, CASE WHEN n > 0 THEN least(n, 999999999) + 1 END);
    END IF;
    IF NEW.route <> '{}' AND coalesce(cardinality(unread), 0) = 0 THEN
        INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at)
        VALUES (NEW.id, NEW.channel_id, greatest(NEW.deliver_at, NEW.created_at));
    END IF;
    RETURN NULL;
END $$;
