-- name: TemplateLock :one
-- Serialises the making and pruning of templates between processes. All of them
-- take it in the database postgres, since advisory locks belong to a database.
-- A session's lock: CREATE DATABASE cannot run inside a transaction.
SELECT 1 FROM (SELECT pg_advisory_lock(@key)) AS locked;

-- name: TemplateUnlock :one
-- Ends TemplateLock on the same connection. False means it was not held.
SELECT pg_advisory_unlock(@key);

-- name: TemplateFind :one
-- The comment of a template, which says when it was last used. Zero rows: there
-- is no such template.
SELECT coalesce(shobj_description(oid, 'pg_database'), '') FROM pg_database WHERE datname = @name;

-- name: LeftoverList :many
-- Databases and templates of all test processes, with their comments.
SELECT datname, coalesce(shobj_description(oid, 'pg_database'), '')
FROM pg_database
WHERE starts_with(datname, @databases) OR starts_with(datname, @templates)
ORDER BY datname;

-- name: CloneAdopt :script
-- Says of a clone that belfry was made in it, as if it had been migrated itself, and leaves
-- no event. In a clone as it is relays wait. As a replica, so that the trigger which records
-- does not fire; DISABLE TRIGGER would cost more than the rest of the making of a clone, and
-- a DO block loads PL/pgSQL. Two statements of one simple query are one transaction.
SET LOCAL session_replication_role = 'replica';
UPDATE belfry.installation SET database_oid = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: VisiblePages :one
-- Whether the last VACUUM marked a table's pages all-visible, all but one in fifty.
SELECT relpages - relallvisible <= relpages / 50 FROM pg_class WHERE oid = @table::text::regclass;
