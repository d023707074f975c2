-- Statements of the load of generated channels.

-- name: LoadMayRebuild :one
-- Whether belfry.channels can be loaded in bulk, which empties it first: it has
-- no row, no foreign key refers to it, and this user owns it.
SELECT NOT EXISTS (SELECT FROM belfry.channels)
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.confrelid = t.oid AND k.contype = 'f')
   AND pg_has_role(t.relowner, 'USAGE')
FROM pg_catalog.pg_class t
WHERE t.oid = 'belfry.channels'::regclass;

-- name: LoadLock :exec
-- Locks the table exclusively before it is emptied and loaded.
LOCK TABLE belfry.channels IN ACCESS EXCLUSIVE MODE;

-- name: LoadIndex :one
-- The definition of the location index, to create it again after the load; NULL
-- without the index.
SELECT pg_get_indexdef(to_regclass('belfry.channels_location_idx'));

-- name: LoadEmpty :script
-- Gives the empty table a new file, which lets COPY FREEZE write its rows as
-- visible to all transactions, and drops the index, which is created after the load.
-- A crash rolls both back.
TRUNCATE belfry.channels;
DROP INDEX IF EXISTS belfry.channels_location_idx;

-- name: LoadCopyFrozen :exec
-- Loads generated channels into the table that this transaction emptied.
COPY belfry.channels (external_id, platform, active, location, locale, time_zone, addresses) FROM STDIN WITH (FREEZE);

-- name: LoadCopy :exec
-- Adds generated channels.
COPY belfry.channels (external_id, platform, active, location, locale, time_zone, addresses) FROM STDIN;

-- name: LoadAnalyze :exec
-- Gives the planner and the walk's estimates the new size at once.
ANALYZE belfry.channels;
