-- The notification centre: functions by which applications list and mark the notifications of a person, with the
-- owner's rights. A role that may execute them needs no rights on tables.
--
-- Locks: belfry.jobs SHARE (scan)

-- Expressions that are bound at creation must not resolve to functions of other roles.
SET LOCAL search_path = pg_catalog, pg_temp;

-- What a person has seen and read, one row per channel that has opened its notification centre. A notification is
-- seen, or read, if its arrival is at most seen_to, or read_to, and not among the exceptions. These are the arrivals
-- of jobs that had not reached the channel then, and the notifications that the person marked as unread.
CREATE TABLE belfry.inbox (
    channel_id  bigint   CONSTRAINT inbox_pkey PRIMARY KEY,
    seen_to     bigint   NOT NULL DEFAULT 0,
    seen_except bigint[] NOT NULL DEFAULT '{}',
    read_to     bigint   NOT NULL DEFAULT 0,
    read_except bigint[] NOT NULL DEFAULT '{}',
    CONSTRAINT inbox_exceptions_check CHECK (cardinality(seen_except) <= 200 AND cardinality(read_except) <= 200)
) WITH (fillfactor = 70);

-- Jobs that may yet write notifications with an arrival that people have passed.
CREATE INDEX jobs_late_idx ON belfry.jobs (arrival) WHERE arrival IS NOT NULL AND type <> 'push' AND (walked_at IS NULL OR skipped > 0);

-- The arrivals up to one, at most 200, of jobs that have not written the channel's notification and may write it:
-- the walk has not reached the channel, or skipped it. Running jobs and the 100 newest other unfinished ones are
-- examined: a notification of an older one, which was stopped and is resumed, arrives as seen or read.
CREATE FUNCTION belfry.inbox_late(channel_id bigint, arrival bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN (SELECT coalesce(array_agg(l.arrival), '{}')
      FROM ((SELECT j.id, j.arrival, j."cursor" FROM belfry.jobs j
              WHERE j.status = 'RUNNING' AND j.arrival <= $2 AND j.type <> 'push'
              ORDER BY j.arrival DESC LIMIT 100)
            UNION
            (SELECT j.id, j.arrival, j."cursor" FROM belfry.jobs j
              WHERE j.arrival <= $2 AND j.arrival IS NOT NULL AND j.type <> 'push' AND (j.walked_at IS NULL OR j.skipped > 0)
              ORDER BY j.arrival DESC LIMIT 100)) l
     WHERE (CASE WHEN l."cursor" ~ '^-?[0-9]{1,18}$' THEN l."cursor"::bigint < $1 ELSE true END
            OR EXISTS (SELECT FROM belfry.job_skips s WHERE s.job_id = l.id AND s.key = $1::text))
       AND NOT EXISTS (SELECT FROM belfry.notifications n WHERE n.channel_id = $1 AND n.arrival = l.arrival));
END $$;

-- Whether a person has read a notification, by its own mark or by the marks of the channel.
CREATE FUNCTION belfry.inbox_is_read(channel_id bigint, arrival bigint, read_at timestamptz) RETURNS boolean
LANGUAGE sql STABLE
RETURN $3 IS NOT NULL OR EXISTS (SELECT FROM belfry.inbox i WHERE i.channel_id = $1 AND i.read_to >= $2 AND $2 <> ALL (i.read_except))
    AND NOT EXISTS (SELECT FROM belfry.notifications n WHERE n.channel_id = $1 AND n.arrival = $2 AND n.late IS NOT NULL);

-- Locales in the order in which a text is searched for them, in lower case, as package outbox/compose does it:
-- zh-Hant-TW, zh-Hant, zh; renamed languages such as iw and he; and the scripts of Chinese regions.
CREATE FUNCTION belfry.locale_fallbacks(locale text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    whole    constant text := lower(replace(locale, '_', '-'));
    language constant text := split_part(whole, '-', 1);
    region   constant text := split_part(whole, '-', 2);
    renamed  constant text := CASE language WHEN 'iw' THEN 'he' WHEN 'he' THEN 'iw' WHEN 'in' THEN 'id' WHEN 'id' THEN 'in' WHEN 'ji' THEN 'yi' WHEN 'yi' THEN 'ji' END;
    script   constant text := CASE WHEN region IN ('tw', 'hk', 'mo') THEN 'hant' WHEN region IN ('cn', 'sg') THEN 'hans' END;
    names    text[] := '{}';
    name     text;
BEGIN
    FOREACH name IN ARRAY ARRAY[whole, renamed || substr(whole, length(language) + 1)] LOOP
        WHILE name <> '' LOOP
            IF name = 'zh' AND script IS NOT NULL THEN
                names := names || ('zh-' || script);
            END IF;
            names := names || name;
            name := CASE WHEN position('-' IN name) > 0 THEN regexp_replace(name, '-[^-]*$', '') ELSE '' END;
        END LOOP;
    END LOOP;
    RETURN names;
END $$;

-- The title and the body for a locale: of the first variant in the order of locale_fallbacks that has one. The title
-- of several is collapsed_title, if the variant has one.
CREATE FUNCTION belfry.localized(locale text, variants jsonb, several boolean, INOUT title text, INOUT body text)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF variants <> '{}' AND locale <> '' THEN
        SELECT coalesce((array_agg(coalesce(CASE WHEN several THEN v.value ->> 'collapsed_title' END, v.value ->> 'title') ORDER BY l.n)
                         FILTER (WHERE v.value ->> 'title' IS NOT NULL OR several AND v.value ->> 'collapsed_title' IS NOT NULL))[1], title),
               coalesce((array_agg(v.value ->> 'body' ORDER BY l.n) FILTER (WHERE v.value ->> 'body' IS NOT NULL))[1], body)
          INTO title, body
          FROM unnest(belfry.locale_fallbacks(locale)) WITH ORDINALITY l (name, n)
          JOIN jsonb_each(variants) v (key, value) ON lower(replace(v.key, '_', '-')) = l.name;
    END IF;
END $$;

-- The values of a template for a person: those of belfry.channels, of the job for this person, and the count of
-- notifications for which one stands.
CREATE FUNCTION belfry.inbox_values(channel_id bigint, job_id bigint, count integer) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_build_object('count', $3, 'value', (SELECT v.value FROM belfry.job_values v WHERE v.job_id = $2 AND v.channel_id = $1))
           || coalesce((SELECT jsonb_build_object('locale', c.locale, 'platform', c.platform, 'external_id', c.external_id, 'time_zone', c.time_zone, 'attributes', c.attributes)
                          FROM belfry.channels c WHERE c.id = $1), '{}')
$$;

-- One page of a person's notifications, newest first: those that arrived before the number before and after the number
-- after, or all, and that are archived or not. It leaves out withdrawn ones, and those of categories from which the
-- person had opted out in every medium. It examines 1,000 at most (inbox_next), in the order of the index: a bitmap would
-- read all. The LIMITs keep each to one descent. Texts are those of the locale, which is by default the one in
-- belfry.channels, with the values of their templates. count is how many notifications one stands for (collapse_key).
CREATE FUNCTION belfry.inbox_page(channel_id bigint, before bigint DEFAULT NULL, max_rows integer DEFAULT 20, archived boolean DEFAULT false, locale text DEFAULT NULL, after bigint DEFAULT 0)
RETURNS TABLE (id bigint, at timestamptz, category text, title text, body text, data jsonb, seen boolean, read boolean, count integer)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_bitmapscan = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    ok constant boolean := max_rows BETWEEN 1 AND 100
        OR belfry.reject('inbox', 'max_rows', format('%s is not allowed; allowed values: 1 to 100', coalesce(max_rows::text, 'null')));
    speaks constant text := left(coalesce($5, (SELECT c.locale FROM belfry.channels c WHERE c.id = $1), ''), 35);
BEGIN
    RETURN QUERY
    SELECT n.arrival, j.started_at, j.category,
           CASE WHEN position('{{' IN t.title) > 0 THEN belfry.rendered(t.title, 200, belfry.inbox_values($1, j.id, coalesce(n.collapsed, 1))) ELSE t.title END,
           CASE WHEN position('{{' IN t.body) > 0 THEN belfry.rendered(t.body, 10000, belfry.inbox_values($1, j.id, coalesce(n.collapsed, 1))) ELSE t.body END,
           coalesce(r.data, j.data),
           coalesce(i.seen_to >= n.arrival AND n.arrival <> ALL (i.seen_except) AND n.late IS DISTINCT FROM 2, false) OR n.read_at IS NOT NULL OR coalesce(i.read_to >= n.arrival AND n.arrival <> ALL (i.read_except) AND n.late IS NULL, false),
           n.read_at IS NOT NULL OR coalesce(i.read_to >= n.arrival AND n.arrival <> ALL (i.read_except) AND n.late IS NULL, false),
           coalesce(n.collapsed, 1)
      FROM (SELECT n.* FROM belfry.notifications n
             WHERE n.channel_id = $1 AND n.arrival > $6 AND n.arrival < coalesce($2, 9223372036854775807) AND n.withdrawn_at IS NULL AND (n.archived_at IS NOT NULL) = $4
             ORDER BY n.arrival DESC LIMIT 1000) n
     CROSS JOIN LATERAL ((SELECT j.id, j.started_at, j.category, j.title, j.body, j.data, j.variants FROM belfry.jobs j WHERE j.arrival = n.arrival LIMIT 1)
                         UNION ALL
                         (SELECT a.id, a.created_at, a.category, coalesce(CASE WHEN n.collapsed > 1 THEN a.collapsed_title END, a.title), a.body, a.data, a.variants
                            FROM belfry.activities a WHERE a.id = -n.arrival LIMIT 1)) j
      LEFT JOIN belfry.inbox i ON i.channel_id = n.channel_id
      LEFT JOIN LATERAL (SELECT v.title, v.body, v.data, v.variants FROM belfry.job_revisions v
                          WHERE v.job_id = j.id
                            AND CASE WHEN n.revision IS NOT NULL THEN v.revision > n.revision ELSE v."cursor" ~ '^-?[0-9]{1,18}$' AND v."cursor"::bigint >= $1 END
                          ORDER BY v.revision LIMIT 1) r ON true
     CROSS JOIN LATERAL belfry.localized(speaks, coalesce(r.variants, j.variants), coalesce(n.collapsed > 1, false), coalesce(r.title, j.title), coalesce(r.body, j.body)) t
     WHERE NOT EXISTS (SELECT FROM belfry.opt_outs o WHERE o.channel_id = $1 AND o.medium = '*' AND o.category IN ('*', j.category) AND o.opted_out_at <= j.started_at)
     ORDER BY n.arrival DESC
     LIMIT max_rows;
END $$;

-- Returns the value of before for the next page if inbox_page returned fewer rows than max_rows. NULL means that the list
-- has no more rows.
CREATE FUNCTION belfry.inbox_next(channel_id bigint, before bigint DEFAULT NULL, archived boolean DEFAULT false) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_bitmapscan = off SET enable_seqscan = off AS $$
    SELECT min(e.arrival)
      FROM (SELECT n.arrival FROM belfry.notifications n
             WHERE n.channel_id = $1 AND n.arrival < coalesce($2, 9223372036854775807) AND n.withdrawn_at IS NULL AND (n.archived_at IS NOT NULL) = $3
             ORDER BY n.arrival DESC LIMIT 1000) e
    HAVING count(*) = 1000
$$;

-- The counts of unread and of unseen notifications among the newest 100 that are neither archived nor withdrawn: 100
-- means 100 or more. It examines 1,000 at most. The rule is inbox_page's, without the texts: applications show the count on
-- each of their pages.
CREATE FUNCTION belfry.inbox_unread(channel_id bigint, OUT unread integer, OUT unseen integer)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_bitmapscan = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    SELECT count(*) FILTER (WHERE NOT l.read), count(*) FILTER (WHERE NOT l.read AND NOT l.seen) INTO unread, unseen
      FROM (SELECT coalesce(i.seen_to >= n.arrival AND n.arrival <> ALL (i.seen_except) AND n.late IS DISTINCT FROM 2, false) AS seen,
                   n.read_at IS NOT NULL OR coalesce(i.read_to >= n.arrival AND n.arrival <> ALL (i.read_except) AND n.late IS NULL, false) AS read
              FROM (SELECT n.* FROM belfry.notifications n WHERE n.channel_id = $1 AND n.withdrawn_at IS NULL AND n.archived_at IS NULL ORDER BY n.arrival DESC LIMIT 1000) n
             CROSS JOIN LATERAL ((SELECT j.started_at AS at, j.category FROM belfry.jobs j WHERE j.arrival = n.arrival LIMIT 1)
                                 UNION ALL
                                 (SELECT a.created_at, a.category FROM belfry.activities a WHERE a.id = -n.arrival LIMIT 1)) j
              LEFT JOIN belfry.inbox i ON i.channel_id = n.channel_id
             WHERE NOT EXISTS (SELECT FROM belfry.opt_outs o WHERE o.channel_id = $1 AND o.medium = '*' AND o.category IN ('*', j.category) AND o.opted_out_at <= j.at)
             ORDER BY n.arrival DESC
             LIMIT 100) l;
END $$;

-- Marks all notifications of a person as seen and, with read, as read. It locks the person's marks, so that it waits for
-- other marks of the person. A first mark locks one of the newest notifications: an erasure deletes the marks after the
-- notifications, so that none outlive it. It does not wait for a transaction that deletes notifications, as one that collapses
-- does; if all are locked, a first mark has no effect. It clears late in the newest 200 of the list: an index on late would
-- cost each notification of a job a tenth of its COPY.
CREATE FUNCTION belfry.inbox_mark(channel_id bigint, read boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM belfry.inbox i WHERE i.channel_id = $1 FOR NO KEY UPDATE;
    UPDATE belfry.notifications n SET late = CASE WHEN NOT $2 THEN 1 END
     WHERE n.channel_id = $1
       AND n.arrival = ANY (ARRAY(
           SELECT k.arrival FROM belfry.notifications k
            WHERE k.channel_id = $1 AND k.late >= CASE WHEN $2 THEN 1 ELSE 2 END
              AND k.arrival >= (SELECT min(a.arrival) FROM (SELECT a.arrival FROM belfry.notifications a WHERE a.channel_id = $1 AND a.withdrawn_at IS NULL AND a.archived_at IS NULL ORDER BY a.arrival DESC LIMIT 200) a)
              FOR NO KEY UPDATE SKIP LOCKED));
    INSERT INTO belfry.inbox AS i (channel_id, seen_to, seen_except, read_to, read_except)
    SELECT $1, m.arrival, m.late, CASE WHEN $2 THEN m.arrival ELSE 0 END, CASE WHEN $2 THEN m.late ELSE '{}' END
      FROM (SELECT n.arrival, belfry.inbox_late($1, n.arrival) AS late
              FROM (SELECT greatest(f.arrival, (SELECT o.seen_to FROM belfry.inbox o WHERE o.channel_id = $1)) AS arrival
                      FROM belfry.notifications f
                     WHERE f.channel_id = $1 AND coalesce((SELECT true FROM belfry.jobs j WHERE j.arrival = f.arrival LIMIT 1), (SELECT true FROM belfry.activities a WHERE a.id = -f.arrival LIMIT 1))
                     ORDER BY f.arrival DESC LIMIT 1) n
             WHERE coalesce((SELECT true FROM belfry.inbox o WHERE o.channel_id = $1),
                            (SELECT true FROM belfry.notifications k
                              WHERE k.channel_id = $1 AND k.arrival = ANY (ARRAY(SELECT a.arrival FROM belfry.notifications a WHERE a.channel_id = $1 ORDER BY a.arrival DESC LIMIT 20))
                              LIMIT 1 FOR KEY SHARE SKIP LOCKED))) m
        ON CONFLICT ON CONSTRAINT inbox_pkey DO UPDATE
       SET seen_to = excluded.seen_to, seen_except = excluded.seen_except,
           read_to = greatest(i.read_to, excluded.read_to), read_except = CASE WHEN $2 THEN excluded.read_except ELSE i.read_except END
     WHERE i.seen_to <= excluded.seen_to
       AND ((i.seen_to, i.seen_except) <> (excluded.seen_to, excluded.seen_except) OR $2 AND (i.read_to, i.read_except) <> (excluded.read_to, excluded.read_except));
END $$;

-- Marks all notifications of a person as seen: the list was opened.
CREATE FUNCTION belfry.inbox_seen(channel_id bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT belfry.inbox_mark($1, false) $$;

-- Marks all notifications of a person as read, which are seen, too.
CREATE FUNCTION belfry.inbox_read_all(channel_id bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT belfry.inbox_mark($1, true) $$;

-- Marks notifications of a person as read, or with read => false as unread, by their ids in inbox_page.
CREATE FUNCTION belfry.inbox_read(channel_id bigint, ids bigint[], read boolean DEFAULT true) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ok constant boolean := cardinality(ids) <= 100 AND read IS NOT NULL
        OR belfry.reject('inbox', 'ids', format('%s ids are not allowed; allowed values: up to 100 ids', coalesce(cardinality(ids)::text, 'null')));
BEGIN
    UPDATE belfry.notifications n SET read_at = CASE WHEN $3 THEN clock_timestamp() END
     WHERE n.channel_id = $1 AND n.arrival = ANY ($2) AND n.withdrawn_at IS NULL AND (n.read_at IS NULL) = $3;
    IF $3 THEN
        UPDATE belfry.inbox i SET read_except = ARRAY(SELECT e FROM unnest(i.read_except) e WHERE e <> ALL (array_remove($2, NULL)) ORDER BY e)
         WHERE i.channel_id = $1 AND i.read_except && $2;
    ELSE
        UPDATE belfry.inbox i
           SET read_except = ARRAY(SELECT e FROM (SELECT e FROM unnest(i.read_except) e UNION SELECT n.arrival FROM belfry.notifications n WHERE n.channel_id = $1 AND n.arrival = ANY ($2)) u (e)
                                    ORDER BY EXISTS (SELECT FROM belfry.notifications n WHERE n.channel_id = $1 AND n.arrival = e), e DESC LIMIT 200) -- first those that have not arrived
         WHERE i.channel_id = $1 AND i.read_to >= (SELECT min(d) FROM unnest($2) d);
    END IF;
END $$;

-- Archives notifications of a person, or with archived => false returns them to the list.
CREATE FUNCTION belfry.inbox_archive(channel_id bigint, ids bigint[], archived boolean DEFAULT true) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ok constant boolean := cardinality(ids) <= 100 AND archived IS NOT NULL
        OR belfry.reject('inbox', 'ids', format('%s ids are not allowed; allowed values: up to 100 ids', coalesce(cardinality(ids)::text, 'null')));
BEGIN
    UPDATE belfry.notifications n SET archived_at = CASE WHEN $3 THEN clock_timestamp() END
     WHERE n.channel_id = $1 AND n.arrival = ANY ($2) AND n.withdrawn_at IS NULL AND (n.archived_at IS NULL) = $3;
END $$;

-- Inserts one notification in the caller's transaction, and a message to the channel by the route, which is by
-- default the category's; the route {} sends none. It returns the id of the activity, which is negative: in inbox_page
-- the notification has its absolute value. deliver_at is the message's. With an idempotency key that was seen, it
-- returns the first one's id. With a collapse key it takes the place of the channel's unread ones with this key, shows
-- collapsed_title (or the variant's) with {{count}}, and sends no message.
CREATE FUNCTION belfry.notify(
    channel_id bigint, category text, title text, body text DEFAULT '', data jsonb DEFAULT '{}',
    variants jsonb DEFAULT '{}', route text[] DEFAULT NULL, deliver_at timestamptz DEFAULT NULL,
    idempotency_key text DEFAULT NULL, requested_by text DEFAULT NULL, collapse_key text DEFAULT NULL, collapsed_title text DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
RETURN belfry.insert_activity($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, true, $11, $12);

-- As notify, to the channel with an external id.
CREATE FUNCTION belfry.notify_external(
    external_id text, category text, title text, body text DEFAULT '', data jsonb DEFAULT '{}',
    variants jsonb DEFAULT '{}', route text[] DEFAULT NULL, deliver_at timestamptz DEFAULT NULL,
    idempotency_key text DEFAULT NULL, requested_by text DEFAULT NULL, collapse_key text DEFAULT NULL, collapsed_title text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN belfry.notify(belfry.channel_id($1), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);
END $$;

REVOKE EXECUTE ON FUNCTION belfry.inbox_values(bigint, bigint, integer), belfry.inbox_late(bigint, bigint), belfry.inbox_mark(bigint, boolean), belfry.inbox_page(bigint, bigint, integer, boolean, text, bigint), belfry.inbox_next(bigint, bigint, boolean), belfry.inbox_unread(bigint),
    belfry.inbox_seen(bigint), belfry.inbox_read_all(bigint), belfry.inbox_read(bigint, bigint[], boolean), belfry.inbox_archive(bigint, bigint[], boolean) FROM PUBLIC;

-- A person's preferences: one row for each category and medium, with '*' for all of them. opted_out: there is this
-- opt-out. receives: no opt-out, such as one of every category, covers the row.
CREATE FUNCTION belfry.inbox_preferences(channel_id bigint)
RETURNS TABLE (category text, medium text, opted_out boolean, receives boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.name, m.name, coalesce(bool_or(o.category = c.name AND o.medium = m.name), false), count(o.channel_id) = 0
      FROM (SELECT '*' UNION ALL SELECT name FROM belfry.categories) c (name)
     CROSS JOIN (SELECT '*' UNION ALL SELECT name FROM belfry.media) m (name)
      LEFT JOIN belfry.opt_outs o ON o.channel_id = $1 AND o.category IN ('*', c.name) AND o.medium IN ('*', m.name)
     GROUP BY c.name, m.name
     ORDER BY c.name COLLATE "C", m.name COLLATE "C"
$$;

-- Records a person's opt-out, or with opted_out => false deletes it, as opt_out and opt_in.
CREATE FUNCTION belfry.inbox_prefer(channel_id bigint, category text, medium text, opted_out boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ok constant boolean := opted_out IS NOT NULL OR belfry.reject('inbox', 'opted_out', 'null is not allowed; allowed values: true, false');
BEGIN
    IF $4 THEN
        PERFORM belfry.opt_out($1, $2, $3, 'by the recipient, in the notification centre');
    ELSE
        PERFORM belfry.opt_in($1, $2, $3);
    END IF;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.inbox_preferences(bigint), belfry.inbox_prefer(bigint, text, text, boolean) FROM PUBLIC;
-- The four functions by which a server node follows new notifications (package outbox/inbox/live), with the owner's
-- rights. Their results are those of the caller's snapshot.

-- The arrivals above one, in ascending order, and those among holes, at most max_rows: of activities, with the
-- channel of one in the notification centre, and of jobs. A NULL after begins max_rows below the newest.
CREATE FUNCTION belfry.inbox_arrivals(after bigint, holes bigint[], max_rows integer) RETURNS TABLE (arrival bigint, channel_id bigint, walks boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    start   constant bigint := coalesce(after, greatest(-(SELECT min(a.id) FROM belfry.activities a), (SELECT max(j.arrival) FROM belfry.jobs j)) - max_rows, 0);
    negated constant bigint[] := ARRAY(SELECT -h FROM unnest(holes) h);
BEGIN
    RETURN QUERY
    SELECT u.* FROM (
        (SELECT -a.id, CASE WHEN a.inbox THEN a.channel_id END, false FROM belfry.activities a WHERE a.id < -start ORDER BY a.id DESC LIMIT max_rows)
        UNION ALL
        (SELECT j.arrival, NULL, j.type <> 'push' FROM belfry.jobs j WHERE j.arrival > start ORDER BY j.arrival LIMIT max_rows)
        UNION ALL
        SELECT -a.id, CASE WHEN a.inbox THEN a.channel_id END, false FROM belfry.activities a WHERE a.id = ANY (negated)
        UNION ALL
        SELECT j.arrival, NULL, j.type <> 'push' FROM belfry.jobs j WHERE j.arrival = ANY (holes)) u
     ORDER BY 1 LIMIT max_rows;
END $$;

-- The progress of the jobs that write notifications: those that run, the 100 newest other unfinished ones, those with
-- the arrivals followed, and with since also those that were walked since. by_channel means that the cursor is a channel.
CREATE FUNCTION belfry.inbox_walks(followed bigint[], since timestamptz DEFAULT NULL) RETURNS TABLE (arrival bigint, "cursor" text, running boolean, walked boolean, by_channel boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT j.arrival, coalesce(j."cursor", ''), j.status = 'RUNNING', j.walked_at IS NOT NULL, j.type = 'inbox'
      FROM belfry.jobs j
     WHERE j.type <> 'push' AND j.arrival IS NOT NULL AND j.id IN (
        (SELECT r.id FROM belfry.jobs r WHERE r.status = 'RUNNING')
        UNION
        (SELECT l.id FROM belfry.jobs l
          WHERE l.arrival IS NOT NULL AND l.type <> 'push' AND (l.walked_at IS NULL OR l.skipped > 0)
          ORDER BY l.arrival DESC LIMIT 100)
        UNION
        (SELECT f.id FROM belfry.jobs f WHERE f.arrival = ANY (followed))
        UNION
        (SELECT w.id FROM belfry.jobs w WHERE since IS NOT NULL AND w.walked_at >= since));
END $$;

-- Those among channels that have the notification with an arrival. The LIMIT keeps each to one descent.
CREATE FUNCTION belfry.inbox_reached(arrival bigint, channels bigint[]) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT c.id FROM unnest($2) c (id)
     CROSS JOIN LATERAL (SELECT FROM belfry.notifications n WHERE n.channel_id = c.id AND n.arrival = $1 AND n.withdrawn_at IS NULL LIMIT 1) n;
END $$;

-- The arrivals of a channel's notifications above one, and those among late, in ascending order, at most max_rows.
CREATE FUNCTION belfry.inbox_since(channel_id bigint, after bigint, late bigint[], max_rows integer) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT u.arrival FROM (
        (SELECT n.arrival FROM belfry.notifications n WHERE n.channel_id = $1 AND n.arrival > $2 AND n.withdrawn_at IS NULL ORDER BY n.arrival LIMIT $4)
        UNION
        SELECT n.arrival FROM belfry.notifications n WHERE n.channel_id = $1 AND n.arrival = ANY ($3) AND n.withdrawn_at IS NULL) u
     ORDER BY u.arrival LIMIT $4;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.inbox_arrivals(bigint, bigint[], integer), belfry.inbox_walks(bigint[], timestamptz), belfry.inbox_reached(bigint, bigint[]),
    belfry.inbox_since(bigint, bigint, bigint[], integer) FROM PUBLIC;
