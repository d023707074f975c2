-- Statements of an attached relation: belfry.attachments and the functions of
-- migrations/0002 that keep belfry.channels in step with it.

-- name: AttachFacts :one
-- Facts of the catalog about @relation (its quoted name): its oid, schema, name, kind and
-- persistence, whether other tables inherit from it, the grants that this user lacks, as
-- statements, and whether a unique index holds @key alone, checked at each write. No row:
-- no such relation.
SELECT r.oid, n.nspname, r.relname, r.relkind::text, r.relpersistence::text,
       EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = r.oid),
       array_remove(ARRAY[
           CASE WHEN NOT has_table_privilege(r.oid, 'SELECT') OR NOT has_table_privilege(r.oid, 'TRIGGER')
                THEN format('GRANT SELECT, TRIGGER ON %s TO %I', r.oid::regclass, current_user) END,
           CASE WHEN NOT has_schema_privilege(n.oid, 'USAGE') THEN format('GRANT USAGE ON SCHEMA %I TO %I', n.nspname, current_user) END,
           (SELECT format('connect as %I, who owns the schema belfry, or as a superuser', pg_get_userbyid(b.nspowner))
              FROM pg_catalog.pg_namespace b WHERE b.nspname = 'belfry' AND NOT pg_has_role(b.nspowner, 'USAGE'))], NULL),
       EXISTS (
            SELECT FROM pg_catalog.pg_index i
            JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid AND a.attname = @key
            WHERE i.indrelid = r.oid AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
              AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
FROM pg_catalog.pg_class r
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
WHERE r.oid = to_regclass(@relation);

-- name: MediaNames :one
-- The media that addresses may be for, sorted.
SELECT coalesce(array_agg(m.name ORDER BY m.name), '{}') FROM belfry.media m;

-- name: AttachmentBegin :exec
-- The first statement of each transaction. READ COMMITTED lets a step read rows that were
-- committed while it waited.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

-- name: AttachmentLimits :exec
-- Sets a lock timeout below deadlock_timeout (1 s by default), so that writers wait briefly and
-- the server aborts no writer for a deadlock. A policy that hides rows is an error.
SELECT set_config('lock_timeout', @lock_timeout_ms::integer::text, true), set_config('row_security', 'off', true);

-- name: AttachmentSet :many
-- Records the attachment of the relation @id, whose mapped columns are @names. The position of
-- the backfill is reset if the relation or its columns differ from the recorded ones. No row:
-- another relation is attached.
INSERT INTO belfry.attachments AS a (relation_schema, relation_name, key_column, key_type, columns, relation_id, shape)
SELECT @schema, @name, @key, @key_type, @columns::jsonb, @id,
       jsonb_object_agg(t.attname, jsonb_build_object('type', format('%I.%I', n.nspname, y.typname), 'number', t.attnum))
FROM pg_catalog.pg_attribute t
JOIN pg_catalog.pg_type y ON y.oid = t.atttypid
JOIN pg_catalog.pg_namespace n ON n.oid = y.typnamespace
WHERE t.attrelid = @id AND t.attnum > 0 AND t.attname = ANY (@names::text[])
ON CONFLICT (only_row) DO UPDATE
SET key_column = excluded.key_column, key_type = excluded.key_type, columns = excluded.columns, shape = excluded.shape, relation_id = excluded.relation_id,
    position = CASE WHEN (a.columns, a.shape, a.relation_id) = (excluded.columns, excluded.shape, excluded.relation_id) THEN a.position END,
    rows_filled = CASE WHEN (a.columns, a.shape, a.relation_id) = (excluded.columns, excluded.shape, excluded.relation_id) THEN a.rows_filled ELSE 0 END,
    rows_unusable = CASE WHEN (a.columns, a.shape, a.relation_id) = (excluded.columns, excluded.shape, excluded.relation_id) THEN a.rows_unusable ELSE 0 END,
    filled_at = CASE WHEN (a.columns, a.shape, a.relation_id) = (excluded.columns, excluded.shape, excluded.relation_id) THEN a.filled_at END
WHERE (a.relation_schema, a.relation_name) = (excluded.relation_schema, excluded.relation_name)
RETURNING true;

-- name: AttachmentFollow :exec
-- Puts the triggers on the attached relation.
SELECT belfry.attachment_follow();

-- name: AttachmentRead :many
-- The attachment, whether its relation is there, whether all of its triggers are, how the
-- relation has changed so that it cannot be followed, and the writes that were not followed
-- (at most 100,000 are counted), with their errors. No row: nothing is attached. By the
-- catalog alone: not all who ask may use its schema, and to_regclass is an error for them.
SELECT format('%I.%I', a.relation_schema, a.relation_name), a.key_column, a.columns, a.rows_filled, a.rows_unusable,
       coalesce(greatest(c.reltuples, 0)::bigint, 0), a.attached_at, a.filled_at, a.verified_at, c.oid IS NOT NULL,
       (SELECT count(*) = 2 FROM pg_catalog.pg_trigger t
         WHERE t.tgrelid = c.oid AND t.tgenabled IN ('O', 'A')
           AND t.tgname IN ('!belfry_follow_rows', '!belfry_follow_truncate')),
       ARRAY(SELECT f.problem FROM (
           SELECT format('column %I is renamed to %I', s.key, w.attname)
             FROM jsonb_each(a.shape) s
             LEFT JOIN pg_catalog.pg_attribute t ON t.attrelid = c.oid AND t.attname = s.key AND NOT t.attisdropped
             JOIN pg_catalog.pg_attribute w ON w.attrelid = a.relation_id AND w.attrelid = c.oid AND w.attnum = (s.value ->> 'number')::smallint AND NOT w.attisdropped
            WHERE t.attname IS DISTINCT FROM w.attname
           UNION ALL
           SELECT CASE WHEN t.attname IS NULL THEN format('column %I does not exist any more', s.key)
                       WHEN t.attgenerated = 'v' THEN format('column %I is VIRTUAL now', s.key)
                       WHEN t.attnum <> (s.value ->> 'number')::smallint THEN format('column %I was dropped and made again', s.key)
                       ELSE format('column %I is %s now, and was %s', s.key, format_type(t.atttypid, NULL), replace(s.value ->> 'type', 'pg_catalog.', '')) END
             FROM jsonb_each(a.shape) s
             LEFT JOIN (pg_catalog.pg_attribute t JOIN pg_catalog.pg_type y ON y.oid = t.atttypid JOIN pg_catalog.pg_namespace n ON n.oid = y.typnamespace)
               ON t.attrelid = c.oid AND t.attname = s.key AND NOT t.attisdropped
            WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute w
                    WHERE w.attrelid = a.relation_id AND w.attrelid = c.oid AND w.attnum = (s.value ->> 'number')::smallint AND NOT w.attisdropped AND w.attname <> s.key)
              AND (t.attname IS NULL OR t.attgenerated = 'v' OR format('%I.%I', n.nspname, y.typname) <> s.value ->> 'type'
                OR c.oid = a.relation_id AND t.attnum <> (s.value ->> 'number')::smallint)
           UNION ALL
           SELECT format('no unique index holds %I alone any more, checked at each write', a.key_column)
             FROM pg_catalog.pg_attribute t
            WHERE t.attrelid = c.oid AND t.attname = a.key_column
              AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate
                    AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = t.attnum)
           UNION ALL
           SELECT 'other tables inherit from it now, whose rows are not followed' WHERE EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid)
           UNION ALL
           SELECT 'it is unlogged now, and a crash of the server empties it without a trigger' WHERE c.relpersistence <> 'p'
           UNION ALL
           SELECT format('a subscription writes to it, for which its triggers do not fire: ALTER TABLE %I.%I ENABLE ALWAYS TRIGGER %s', n.nspname, c.relname,
                      string_agg(quote_ident(t.tgname), ', ENABLE ALWAYS TRIGGER ' ORDER BY t.tgname))
             FROM pg_catalog.pg_trigger t
            WHERE t.tgrelid = c.oid AND t.tgenabled = 'O' AND t.tgname IN ('!belfry_follow_rows', '!belfry_follow_truncate')
              AND EXISTS (SELECT FROM pg_catalog.pg_subscription_rel p WHERE p.srrelid = c.oid)
           HAVING count(*) > 0
           ) f (problem) WHERE c.oid IS NOT NULL),
       m.missed, m.states
FROM belfry.attachments a
LEFT JOIN (pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace)
  ON n.nspname = a.relation_schema AND c.relname = a.relation_name AND c.relkind = 'r'
CROSS JOIN LATERAL (
    SELECT count(*) AS missed, coalesce(array_agg(DISTINCT x.sqlstate), '{}') AS states
    FROM (SELECT s.sqlstate FROM belfry.attachment_misses s LIMIT 100000) x) m;

-- name: AttachmentLock :many
-- Where the next step begins; one process at a time. No row: nothing is attached, or all
-- has been brought over.
SELECT a.position FROM belfry.attachments a WHERE a.filled_at IS NULL FOR UPDATE;

-- name: AttachmentStep :one
-- One step over the rows after @after; see belfry.attachment_step.
SELECT s.looked, s.missing, s.different, s.unusable, s.next FROM belfry.attachment_step(@after, @rows, @repair) s;

-- name: AttachmentMove :exec
-- Keeps how far the steps have come; @next NULL: that was all.
UPDATE belfry.attachments a
SET position = coalesce(@next, a.position), rows_filled = a.rows_filled + @compared::bigint - @unusable::bigint,
    rows_unusable = a.rows_unusable + @unusable::bigint,
    filled_at = CASE WHEN @next::text IS NULL THEN clock_timestamp() END;

-- name: AttachmentStrays :one
-- One step over the channels after @after; see belfry.attachment_strays.
SELECT s.looked, s.strays, s.next FROM belfry.attachment_strays(@after, @rows, @repair) s;

-- name: AttachmentMisses :one
-- The misses that a comparison which begins now covers, the oldest million.
SELECT coalesce(array_agg(m.id), '{}') FROM (SELECT s.id FROM belfry.attachment_misses s ORDER BY s.id LIMIT 1000000) m;

-- name: AttachmentVerified :exec
-- Keeps when drift was last repaired, and forgets the misses that this covers.
WITH covered AS (DELETE FROM belfry.attachment_misses m WHERE m.id = ANY (@misses::bigint[]))
UPDATE belfry.attachments SET verified_at = clock_timestamp();

-- name: PlatformsUnlisted :one
-- The first ten platforms of active channels that no audience can name, sorted. It reads all
-- channels.
SELECT coalesce(array_agg(x.platform ORDER BY x.platform), '{}')
FROM (SELECT DISTINCT c.platform FROM belfry.channels c
      WHERE c.active AND c.platform <> 'unknown' AND NOT EXISTS (SELECT FROM belfry.platforms p WHERE p.name = c.platform)
      ORDER BY c.platform LIMIT 10) x;

-- name: AttachmentDrop :exec
-- Takes the triggers off, which is their table's owner's right, and forgets the attachment.
SELECT belfry.attachment_unfollow();

-- name: ActorSet :exec
-- Sets the actor and the reason of the event of this transaction.
SELECT FROM belfry.act(@actor, @reason);
