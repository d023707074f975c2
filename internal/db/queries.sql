-- Statements for the detection of a pooler and for transactions.

-- name: BackendPID :one
-- The server process of this session. Always one row.
SELECT pg_backend_pid();

-- name: Probe :one
-- A statement that is prepared to test whether a pooler loses it. {{mark}} identifies the connection. Always
-- one row.
SELECT {{mark}}::text;

-- name: ForgetPlans :exec
-- Discards the plans of the session's statements, including the statements of functions.
DISCARD PLANS;

-- name: Session :one
-- The server process of this session, and the epoch of its start. Always one row.
SELECT a.pid::bigint, extract(epoch FROM a.backend_start)::text FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a;

-- name: SessionEnd :exec
-- Terminates the server process @pid if it was started at @began.
SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_get_activity(@pid::integer) a WHERE extract(epoch FROM a.backend_start)::text = @began;

-- name: SessionUnlock :exec
-- Releases the session's advisory locks.
SELECT pg_catalog.pg_advisory_unlock_all();

-- name: TxBegin :exec
-- Sets the limits of one short transaction, in milliseconds. A row that another session locks ends it with
-- 55P03 and not with a lost connection. A client that is stopped in the middle holds its locks only until
-- the timeout. The commit is durable whatever the role's defaults are. Statements are planned for the
-- present size of the tables, because a cached plan for a small table scans it after it has grown. Only the
-- session @fresh, whose plans are new, caches them; behind a pooler no session matches. JIT is off: the
-- planner overestimates recursive statements, and compiling one takes 0.1 s.
SELECT set_config('lock_timeout', @lock_timeout_ms::text, true),
       set_config('statement_timeout', @timeout_ms::text, true),
       set_config('idle_in_transaction_session_timeout', @timeout_ms::text, true),
       set_config('plan_cache_mode', CASE WHEN pg_backend_pid() = @fresh::bigint THEN 'auto' ELSE 'force_custom_plan' END, true),
       set_config('jit', 'off', true),
       set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
           ELSE current_setting('synchronous_commit') END, true);

-- name: VersionLock :one
-- Locks an object until the transaction ends and returns its version. NULL means that it does not exist.
-- Always one row.
SELECT belfry.lock_version(@subject, @name);

-- name: VersionUnlock :exec
-- Deletes the row that VersionLock inserted in order to lock it, unless the act changed it.
SELECT belfry.unlock_version(@subject, @name);

-- name: LockHolders :many
-- The sessions whose open transactions locked or changed the row named @name of {{table}} last, or
-- any of its rows if @name is empty. A prepared transaction has pid 0 and an identifier. No row: the row is not locked,
-- or several sessions share the lock.
SELECT DISTINCT coalesce(a.pid, 0) AS pid, coalesce(a.usename::text, '') AS role, coalesce(a.application_name, '') AS application,
       a.xact_start AS since, coalesce(x.gid, '') AS prepared, '' AS locked, false AS waits
  FROM {{table}} t
  JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = t.xmax
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_prepared_xacts x ON l.pid IS NULL AND x.transaction = t.xmax
 WHERE @name = '' OR to_jsonb(t) ->> 'name' = @name
 ORDER BY 1;

-- name: SchemaExists :one
-- Whether the database was ever migrated. Always one row.
SELECT to_regclass('belfry.schema_migrations') IS NOT NULL;

-- name: SchemaVersion :one
-- The newest applied migration, or 0 after all were undone. Always one row. It needs SELECT on the table.
SELECT coalesce(max(version_id), 0) FROM belfry.schema_migrations WHERE is_applied;

-- name: SchemaUsableFrom :one
-- The oldest version of belfry, by its newest migration, that may use the schema. Always one row.
SELECT belfry.usable_from();

-- name: TableHolders :many
-- The sessions that keep any of @tables of schema belfry locked against writes, or any table of it if @tables is NULL, as
-- LockHolders. Also those that wait for such a lock, as all later statements wait behind them, and those for which these
-- wait, whatever their lock. It reads none of the tables. No row: no session does.
WITH strong AS (
    SELECT l.relation, l.pid, l.granted, l.virtualtransaction
      FROM pg_locks l
     WHERE l.locktype = 'relation' AND l.pid IS DISTINCT FROM pg_backend_pid()
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
       AND l.relation IN (SELECT c.oid FROM pg_class c
                           WHERE c.relnamespace = to_regnamespace('belfry') AND c.relkind IN ('r', 'p') AND (@tables::text[] IS NULL OR regexp_replace(c.relname, '_[0-9]+$', '') = ANY (@tables)))
       AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
)
SELECT DISTINCT coalesce(a.pid, 0) AS pid, coalesce(a.usename::text, '') AS role, coalesce(a.application_name, '') AS application,
       a.xact_start AS since, coalesce(x.gid, '') AS prepared, h.relation::regclass::text AS locked, NOT h.granted AS waits
  FROM (SELECT * FROM strong
        UNION ALL
        SELECT l.relation, l.pid, true, l.virtualtransaction
          FROM strong s
          JOIN pg_locks l ON l.locktype = 'relation' AND l.relation = s.relation AND l.granted AND coalesce(l.pid, 0) = ANY (pg_blocking_pids(s.pid))
         WHERE NOT s.granted) h
  LEFT JOIN pg_stat_activity a ON a.pid = h.pid
  LEFT JOIN pg_prepared_xacts x ON h.pid IS NULL AND h.virtualtransaction = '-1/' || x.transaction::text
 ORDER BY locked, waits, pid;

-- name: RowWriters :many
-- Up to three sessions whose transactions have been open for a second and have locked or changed rows of tables of schema
-- belfry, the longest first, as LockHolders; without such, younger ones that have locked rows and changed none. It reads
-- none of the tables.
WITH w AS (
SELECT coalesce(l.pid, 0) AS pid, coalesce(a.usename::text, '') AS role, coalesce(a.application_name, '') AS application,
       a.xact_start AS since, coalesce(x.gid, '') AS prepared,
       'rows of ' || string_agg(DISTINCT l.relation::regclass::text, ' and ') AS locked, false AS waits,
       (a.xact_start < clock_timestamp() - interval '1 second') IS NOT FALSE AS long, bool_and(l.mode = 'RowShareLock') AS locks
  FROM pg_locks l
  JOIN pg_class c ON c.oid = l.relation AND c.relnamespace = to_regnamespace('belfry') AND c.relkind IN ('r', 'p')
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_prepared_xacts x ON l.pid IS NULL AND l.virtualtransaction = '-1/' || x.transaction::text
 WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() AND l.mode IN ('RowShareLock', 'RowExclusiveLock')
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
 GROUP BY l.pid, l.virtualtransaction, a.usename, a.application_name, a.xact_start, x.gid
)
SELECT w.pid, w.role, w.application, w.since, w.prepared, w.locked, w.waits
  FROM w
 WHERE w.long OR w.locks AND NOT EXISTS (SELECT FROM w o WHERE o.long)
 ORDER BY w.since NULLS LAST, w.pid
 LIMIT 3;
