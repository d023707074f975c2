-- Statements of the look for a pooler, and of transactions.

-- name: BackendPID :one
-- The server process that executes this. Always one row.
SELECT pg_backend_pid();

-- name: Probe :one
-- What is prepared to see whether it is still there: @mark, which tells whose it is. Always
-- one row.
SELECT {{mark}}::text;

-- name: ForgetPlans :exec
-- Has the session's statements, those of its functions too, planned anew.
DISCARD PLANS;

-- name: TxBegin :exec
-- Deadlines for one short transaction, in milliseconds: a row that another session keeps
-- locked ends it with 55P03 rather than with a lost connection, a client that is stopped in
-- the middle of it keeps nothing locked for long, and what it commits is durable whatever
-- the role's defaults. Its statements are planned for the tables as they are now: a plan
-- that a connection made of a small one scans it when it has grown. Only in the session
-- @fresh, whose plans are new, may they be kept; behind a pooler, which has sessions of its
-- own, there is none. None is compiled: a recursive statement is thought to cost more than
-- it does, and compiling it takes 0.1 s.
SELECT set_config('lock_timeout', @lock_timeout_ms::text, true),
       set_config('statement_timeout', @timeout_ms::text, true),
       set_config('idle_in_transaction_session_timeout', @timeout_ms::text, true),
       set_config('plan_cache_mode', CASE WHEN pg_backend_pid() = @fresh::bigint THEN 'auto' ELSE 'force_custom_plan' END, true),
       set_config('jit', 'off', true),
       set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
           ELSE current_setting('synchronous_commit') END, true);

-- name: VersionLock :one
-- Locks what is named until the transaction ends, and returns its version. NULL: there is no
-- such thing. Always one row.
SELECT belfry.lock_version(@subject, @name);

-- name: VersionUnlock :exec
-- Takes back the row that VersionLock made to have one to lock, where the act did nothing to it.
SELECT belfry.unlock_version(@subject, @name);

-- name: LockHolders :many
-- The sessions whose open transactions locked or changed the row named @name of {{table}} last, or
-- any of its rows if @name is empty. A prepared transaction has pid 0. No row: the row is not locked,
-- or several sessions share the lock.
SELECT DISTINCT coalesce(a.pid, 0) AS pid, coalesce(a.usename::text, '') AS role, coalesce(a.application_name, '') AS application, a.xact_start AS since
  FROM {{table}} t
  JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = t.xmax
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE @name = '' OR to_jsonb(t) ->> 'name' = @name
 ORDER BY 1;
