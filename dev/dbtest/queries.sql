-- name: TemplateLock :one
-- Serialises the creation and removal of templates between processes. All take it in the
-- database postgres, because advisory locks belong to a database. It is a session's lock:
-- CREATE DATABASE cannot run inside a transaction.
SELECT 1 FROM (SELECT pg_advisory_lock(@key)) AS locked;

-- name: TemplateUnlock :one
-- Releases TemplateLock on the same connection. False without the lock.
SELECT pg_advisory_unlock(@key);

-- name: TemplateFind :one
-- The comment of a template, which contains the time of its last use. Zero rows without
-- the template.
SELECT coalesce(shobj_description(oid, 'pg_database'), '') FROM pg_database WHERE datname = @name;

-- name: LeftoverList :many
-- Databases and templates of all test processes, with their comments.
SELECT datname, coalesce(shobj_description(oid, 'pg_database'), '')
FROM pg_database
WHERE starts_with(datname, @databases) OR starts_with(datname, @templates)
ORDER BY datname;

-- name: CloneAdopt :script
-- Adopts a clone as an installation of its own, without an event; relays wait in an
-- unadopted clone. It runs as a replica, so that the audit trigger does not fire: DISABLE
-- TRIGGER would cost more than the rest of the creation, and a DO block loads PL/pgSQL. Two
-- statements of one simple query are one transaction.
SET LOCAL session_replication_role = 'replica';
UPDATE belfry.installation SET database_oid = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: CloneBorn :one
-- The transaction of CloneAdopt, the youngest in an unused clone.
SELECT xmin::text::bigint FROM belfry.installation;

-- name: CloneRestorer :one
-- The script that restores a clone, in two parts, with a query between them for the lines that
-- insert missing vocabulary. The script deletes the rows of transactions after $born, without
-- triggers and foreign keys, and resets the sequences. Its last row is the shape of the
-- database, which differs if a test has changed more than rows: the number of rows, of objects
-- of the schema, and of objects, statistics or settings younger than $born, and the properties
-- of relations and schemas. Traces of dropped triggers, constraints and privileges do not
-- count: relhastriggers, and an empty list of privileges.
WITH tables AS MATERIALIZED (
    SELECT c.oid::regclass::text AS name, format('(SELECT count(*) FROM %s)', c.oid::regclass) AS rows, c.oid,
           (SELECT string_agg(quote_ident(a.attname), ', ') FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '') AS columns
      FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'belfry'::regnamespace
)
SELECT 'SET LOCAL session_replication_role = ''replica'';'
       || string_agg(format('DELETE FROM %s WHERE xmin::text::bigint > $born;', t.name), '' ORDER BY t.oid),
       string_agg(format('SELECT format(%L, (SELECT jsonb_agg(t) FROM %s t)) WHERE EXISTS (SELECT FROM %2$s)',
                         format('INSERT INTO %s (%s) SELECT %2$s FROM jsonb_populate_recordset(NULL::%1$s, %%L) ON CONFLICT DO NOTHING;', t.name, t.columns), t.name), ' UNION ALL '),
       (SELECT string_agg(format('SELECT setval(''%I.%I'', %s, %L);', s.schemaname, s.sequencename, coalesce(s.last_value, s.start_value), s.last_value IS NOT NULL), '')
          FROM pg_sequences s WHERE s.schemaname = 'belfry')
       || 'UPDATE belfry.installation SET database_oid = d.oid FROM pg_database d WHERE d.datname = current_database() AND d.oid <> database_oid;'
       || 'SELECT concat_ws('' '', ' || string_agg(t.rows, ' + ') || ', count(*), count(*) FILTER (WHERE x::text::bigint > $born),'
       || '(SELECT sum(hashtextextended(concat_ws('' '', c.relname, c.relkind, c.relowner, c.relfilenode, c.relnatts, c.relchecks, c.relrowsecurity, c.relforcerowsecurity, c.relreplident, c.reloptions,'
       || ' coalesce(c.relacl, acldefault(CASE c.relkind WHEN ''S'' THEN ''s''::"char" ELSE ''r'' END, c.relowner))), 0)) FROM pg_class c WHERE c.oid >= 16384 AND c.relnamespace = ''belfry''::regnamespace),'
       || '(SELECT sum(hashtextextended(concat_ws('' '', n.nspname, n.nspowner, coalesce(n.nspacl, acldefault(''n'', n.nspowner))), 0)) FROM pg_namespace n WHERE n.nspname !~ ''_temp_''))'
       || ' FROM ('
       || (SELECT string_agg(format('SELECT xmin x FROM %s WHERE %s >= 16384', c.name, c.key), ' UNION ALL ')
             FROM (VALUES ('pg_attribute', 'attrelid'), ('pg_attrdef', 'adrelid'), ('pg_constraint', 'oid'), ('pg_index', 'indexrelid'),
                          ('pg_trigger', 'oid'), ('pg_proc', 'oid'), ('pg_type', 'oid'), ('pg_rewrite', 'oid'), ('pg_policy', 'oid'),
                          ('pg_statistic', 'starelid'), ('pg_statistic_ext', 'oid'), ('pg_extension', 'oid'),
                          ('pg_default_acl', 'oid'), ('pg_event_trigger', 'oid'), ('pg_publication', 'oid')) c(name, key))
       || ' UNION ALL SELECT d.xmin FROM pg_database d WHERE d.datname = current_database()'
       || ' UNION ALL SELECT s.xmin FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database()) o'
  FROM tables t;

-- name: SessionRestore :script
-- DISCARD ALL without prepared statements and plans.
CLOSE ALL;
SET SESSION AUTHORIZATION DEFAULT;
RESET ALL;
UNLISTEN *;
SELECT pg_advisory_unlock_all();
DISCARD TEMP;
DISCARD SEQUENCES;

-- name: CloneTidy :many
-- Statements that drop the objects of transactions after @born: schemas, tables and views
-- outside belfry's schema, triggers, constraints, functions, and planner statistics.
-- CloneRestorer detects dropped objects of belfry.
SELECT format('DROP SCHEMA IF EXISTS %I CASCADE', n.nspname) FROM pg_namespace n WHERE n.xmin::text::bigint > @born AND n.nspname !~ '_temp_' AND n.nspname <> 'belfry'
UNION ALL
SELECT format('DROP %s IF EXISTS %s CASCADE', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.oid::regclass) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.xmin::text::bigint > @born AND c.relkind IN ('r', 'p', 'v') AND n.nspname = 'public'
UNION ALL
SELECT format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
 WHERE t.xmin::text::bigint > @born AND NOT t.tgisinternal AND c.relnamespace = 'belfry'::regnamespace
UNION ALL
SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', n.conrelid::regclass, n.conname) FROM pg_constraint n
 WHERE n.xmin::text::bigint > @born AND n.contype <> 't' AND n.connamespace = 'belfry'::regnamespace AND n.conrelid <> 0
UNION ALL
SELECT format('DROP FUNCTION IF EXISTS %s CASCADE', p.oid::regprocedure) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE p.xmin::text::bigint > @born AND p.prokind = 'f' AND n.nspname = 'public'
UNION ALL
SELECT 'DELETE FROM pg_statistic WHERE starelid >= 16384' WHERE EXISTS (SELECT FROM pg_statistic WHERE starelid >= 16384);

-- name: CloneUse :one
-- The number of sessions of this database, including ending ones, and the size of its tables
-- in bytes.
SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'),
       (SELECT sum(pg_relation_size(c.oid))::bigint FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'belfry'::regnamespace);

-- name: Replica :exec
-- Disables triggers for the rest of the transaction.
SET LOCAL session_replication_role = 'replica';

-- name: VisiblePages :one
-- Whether the last VACUUM marked at least 98 % of a table's pages all-visible.
SELECT relpages - relallvisible <= relpages / 50 FROM pg_class WHERE oid = @table::text::regclass;
