-- Statements of an attached relation: belfry.attachments and the functions of
-- migrations/0002 that keep belfry.channels in step with it.

-- name: AttachFacts :one
-- What attaching @relation (its quoted name) asks of the catalog: its schema, name and
-- kind, the grants that this user lacks, as statements, and whether a unique index holds
-- @key alone. No row: no such relation.
SELECT n.nspname, r.relname, r.relkind::text,
       array_remove(ARRAY[
           CASE WHEN NOT has_table_privilege(r.oid, 'SELECT') OR NOT has_table_privilege(r.oid, 'TRIGGER')
                THEN format('GRANT SELECT, TRIGGER ON %s TO %I', r.oid::regclass, current_user) END,
           CASE WHEN NOT has_schema_privilege(n.oid, 'USAGE') THEN format('GRANT USAGE ON SCHEMA %I TO %I', n.nspname, current_user) END,
           CASE WHEN NOT has_table_privilege('belfry.channels', 'SELECT') OR NOT has_table_privilege('belfry.channels', 'INSERT')
                  OR NOT has_table_privilege('belfry.channels', 'UPDATE')
                THEN format('GRANT SELECT, INSERT, UPDATE ON belfry.channels TO %I', current_user) END,
           CASE WHEN NOT has_table_privilege('belfry.attachments', 'SELECT') OR NOT has_table_privilege('belfry.attachments', 'INSERT')
                  OR NOT has_table_privilege('belfry.attachments', 'UPDATE') OR NOT has_table_privilege('belfry.attachments', 'DELETE')
                THEN format('GRANT SELECT, INSERT, UPDATE, DELETE ON belfry.attachments TO %I', current_user) END,
           CASE WHEN NOT has_function_privilege('belfry.channels_follow()', 'EXECUTE')
                THEN format('GRANT EXECUTE ON FUNCTION belfry.channels_follow() TO %I', current_user) END], NULL),
       EXISTS (
            SELECT FROM pg_catalog.pg_index i
            JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid AND a.attname = @key
            WHERE i.indrelid = r.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
              AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
FROM pg_catalog.pg_class r
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
WHERE r.oid = to_regclass(@relation);

-- name: MediaNames :one
-- The media that addresses may be for, sorted.
SELECT coalesce(array_agg(m.name ORDER BY m.name), '{}') FROM belfry.media m;

-- name: AttachmentBegin :exec
-- The first statement of each transaction: a step reads again what was committed while it
-- waited.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

-- name: AttachmentLimits :exec
-- Rather gives up than makes others wait or lets the server choose whom to end for a
-- deadlock (after deadlock_timeout, 1 s by default). A policy that hides rows is an error.
SELECT set_config('lock_timeout', @lock_timeout_ms::integer::text, true), set_config('row_security', 'off', true);

-- name: AttachmentSet :many
-- Records the attachment; what was brought over stays so unless anything else is attached
-- than before. No row: another relation is attached.
INSERT INTO belfry.attachments AS a (relation_schema, relation_name, key_column, key_type, columns)
VALUES (@schema, @name, @key, @key_type, @columns::jsonb)
ON CONFLICT (only_row) DO UPDATE
SET key_column = excluded.key_column, key_type = excluded.key_type, columns = excluded.columns,
    position = CASE WHEN (a.key_column, a.key_type, a.columns) = (excluded.key_column, excluded.key_type, excluded.columns) THEN a.position END,
    rows_filled = CASE WHEN (a.key_column, a.key_type, a.columns) = (excluded.key_column, excluded.key_type, excluded.columns) THEN a.rows_filled ELSE 0 END,
    filled_at = CASE WHEN (a.key_column, a.key_type, a.columns) = (excluded.key_column, excluded.key_type, excluded.columns) THEN a.filled_at END
WHERE (a.relation_schema, a.relation_name) = (excluded.relation_schema, excluded.relation_name)
RETURNING true;

-- name: AttachmentFollow :exec
-- Puts the triggers on the attached relation.
SELECT belfry.attachment_follow();

-- name: AttachmentRead :many
-- The attachment, whether its relation is there, and whether all of its triggers are. No
-- row: nothing is attached. By the catalog alone: not all who ask may use its schema, and
-- to_regclass is an error for them.
SELECT format('%I.%I', a.relation_schema, a.relation_name), a.key_column, a.columns, a.rows_filled,
       coalesce(greatest(c.reltuples, 0)::bigint, 0), a.attached_at, a.filled_at, a.verified_at, c.oid IS NOT NULL,
       (SELECT count(*) = 3 FROM pg_catalog.pg_trigger t
         WHERE t.tgrelid = c.oid AND t.tgenabled <> 'D'
           AND t.tgname IN ('belfry_follow_rows', 'belfry_follow_changes', 'belfry_follow_truncate'))
FROM belfry.attachments a
LEFT JOIN (pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace)
  ON n.nspname = a.relation_schema AND c.relname = a.relation_name;

-- name: AttachmentLock :many
-- Where the next step begins; one process at a time. No row: nothing is attached, or all
-- has been brought over.
SELECT a.position FROM belfry.attachments a WHERE a.filled_at IS NULL FOR UPDATE;

-- name: AttachmentStep :one
-- One step over the rows after @after; see belfry.attachment_step.
SELECT s.looked, s.missing, s.different, s.unusable, s.next FROM belfry.attachment_step(@after, @rows, @repair) s;

-- name: AttachmentMove :exec
-- Keeps how far the steps have come; @looked 0: that was all.
UPDATE belfry.attachments a
SET position = coalesce(@next, a.position), rows_filled = a.rows_filled + @looked::bigint,
    filled_at = CASE WHEN @looked::bigint = 0 THEN clock_timestamp() END;

-- name: AttachmentStrays :one
-- One step over the channels after @after; see belfry.attachment_strays.
SELECT s.looked, s.strays, s.next FROM belfry.attachment_strays(@after, @rows, @repair) s;

-- name: AttachmentVerified :exec
-- Keeps when drift was last repaired.
UPDATE belfry.attachments SET verified_at = clock_timestamp();

-- name: AttachmentDrop :script
-- Takes the triggers off; their owner's right.
DROP TRIGGER IF EXISTS belfry_follow_rows ON {{relation}};
DROP TRIGGER IF EXISTS belfry_follow_changes ON {{relation}};
DROP TRIGGER IF EXISTS belfry_follow_truncate ON {{relation}};

-- name: AttachmentDelete :exec
-- Forgets the attachment.
DELETE FROM belfry.attachments;
