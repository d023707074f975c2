-- The statements of the command itself: the schema's version and the checks of
-- `belfry doctor`. What jobs and channels need is in their packages.

-- name: SchemaExists :one
-- Whether the database was ever migrated. Always one row.
SELECT to_regclass('belfry.schema_migrations') IS NOT NULL;

-- name: SchemaVersion :one
-- The newest migration applied; 0 after all were undone. Always one row.
-- Without privileges on the table this is an error, which says so.
SELECT coalesce(max(version_id), 0) FROM belfry.schema_migrations WHERE is_applied;

-- name: ServerClock :one
-- The database's clock, by which schedules and heartbeats are judged. Always one
-- row.
SELECT clock_timestamp();

-- name: DoctorServer :one
-- What kind of server this is and how safe its commits are. Always one row.
SELECT current_setting('server_version_num')::int                  AS version_number,
       split_part(current_setting('server_version'), ' ', 1)       AS version,
       pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS read_only,
       current_setting('fsync') = 'on'                             AS fsync,
       current_setting('full_page_writes') = 'on'                  AS full_page_writes,
       current_setting('synchronous_commit')                       AS synchronous_commit,
       pg_backend_pid()                                            AS backend_pid;

-- name: DoctorConnections :one
-- Connections that are left for ordinary users. Without pg_read_all_stats other
-- users' backends are still counted, only their details are hidden. Always one
-- row.
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS allowed,
       count(*)::int                                               AS used
  FROM pg_stat_activity
 WHERE backend_type = 'client backend';

-- name: DoctorPrivileges :many
-- Privileges on belfry's tables that the connected user lacks, one row for each
-- table. No row: none is missing.
SELECT n.relation, string_agg(p.privilege, ', ' ORDER BY p.ord) AS missing
  FROM (VALUES ('belfry.jobs', '{SELECT,INSERT,UPDATE}'::text[]),
               ('belfry.job_types', '{SELECT,INSERT,UPDATE}'),
               ('belfry.job_events', '{SELECT}'),
               ('belfry.job_skips', '{SELECT,INSERT,UPDATE,DELETE}'),
               ('belfry.job_revisions', '{SELECT}'),
               ('belfry.lanes', '{SELECT}'),
               ('belfry.schedules', '{SELECT,INSERT,UPDATE}'),
               ('belfry.events', '{SELECT}'),
               ('belfry.notifications', '{SELECT,INSERT}'),
               ('belfry.messages', '{SELECT,INSERT}'),
               ('belfry.segments', '{SELECT}'),
               ('belfry.segment_members', '{SELECT}')) AS n(relation, privileges),
       unnest(n.privileges) WITH ORDINALITY AS p(privilege, ord)
 WHERE to_regclass(n.relation) IS NULL OR NOT has_table_privilege(n.relation, p.privilege)
 GROUP BY n.relation
 ORDER BY n.relation;

-- name: DoctorStale :many
-- RUNNING jobs whose heartbeat is older than @stale_after, longest first: any
-- runner that serves their lane resumes them. No row is the healthy case. At most
-- one row a lane, by jobs_one_running_per_lane.
SELECT id, lane, runner, now() - heartbeat_at AS age
  FROM belfry.jobs
 WHERE status = 'RUNNING' AND heartbeat_at < now() - @stale_after::interval
 ORDER BY heartbeat_at;

-- name: DoctorOverdue :one
-- Due jobs that wait in lanes that are not paused: how many, since when, and the
-- types among them that are not in @types. Relies on jobs_due_idx. Always one row.
SELECT count(*)                                                    AS jobs,
       coalesce(now() - min(schedule_at), '0')                     AS longest,
       coalesce(array_agg(DISTINCT type) FILTER (WHERE type <> ALL (@types::text[])), '{}') AS unknown_types
  FROM belfry.jobs j
 WHERE status = 'PENDING' AND schedule_at <= now()
   AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL);

-- name: DoctorStatistics :one
-- Whether this role may read the statistics of other users' sessions, which health
-- checks look at, and the standbys it sees: how many, and the replay lag of the one
-- furthest behind; NULL when that is caught up, or there is none. Always one row.
SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')     AS may_read,
       count(*)::int                                               AS standbys,
       max(replay_lag)                                             AS lag
  FROM pg_stat_replication;
