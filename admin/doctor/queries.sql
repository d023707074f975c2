-- name: HealthRead :one
-- State of the server from its statistics, and the number of relays with a heartbeat within @seconds, by
-- transport. NULL means that the role may not read it, or there is none. Always one row.
SELECT clock_timestamp() AS at, current_setting('server_version') AS server, pg_is_in_recovery() AS standby,
       (SELECT sum(d.numbackends)::integer FROM pg_stat_database d) AS connections, current_setting('max_connections')::integer AS max_connections,
       CASE WHEN pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
            THEN (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(a.xact_start)), 0)::double precision FROM pg_stat_activity a WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()) END AS oldest_transaction,
       (SELECT extract(epoch FROM max(r.replay_lag))::double precision FROM pg_stat_replication r) AS replay_lag,
       coalesce((SELECT jsonb_object_agg(k.transport, k.n) FROM (SELECT r.transport, count(*) AS n FROM belfry.relays r
                  WHERE r.heartbeat_at BETWEEN clock_timestamp() - make_interval(secs => @seconds) AND clock_timestamp() + interval '1 minute' GROUP BY r.transport) k), '{}') AS relays;

-- The statements of the doctor.
-- name: DoctorServer :one
-- Version, role and durability of the server. Always one row.
SELECT current_setting('server_version_num')::int                  AS version_number,
       split_part(current_setting('server_version'), ' ', 1)       AS version,
       pg_is_in_recovery()                                         AS standby,
       current_setting('transaction_read_only') = 'on'             AS read_only,
       current_setting('fsync') = 'on'                             AS fsync,
       current_setting('full_page_writes') = 'on'                  AS full_page_writes,
       current_setting('synchronous_commit')                       AS synchronous_commit,
       current_setting('synchronous_standby_names')                AS synchronous_standby_names,
       (SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep') AS waiting_commits;

-- name: DoctorSecured :many
-- Tables of belfry whose rows row-level security hides from this user, except the tables with policies
-- of belfry.
SELECT c.oid::regclass::text, coalesce((SELECT string_agg(quote_ident(p.polname), ', ' ORDER BY p.polname) FROM pg_policy p WHERE p.polrelid = c.oid), '')
  FROM pg_class c
 WHERE c.relnamespace = 'belfry'::regnamespace AND c.relkind IN ('r', 'p') AND row_security_active(c.oid)
   AND c.relname NOT IN ('users', 'tokens', 'sessions', 'requests', 'channels')
 ORDER BY 1;

-- name: DoctorCreators :many
-- The schemas of the search_path in which a role may create objects that this user's statements would
-- find, and such roles: logins except this user, superusers, and the owners of the database and of
-- belfry's schema; PUBLIC means all.
SELECT quote_ident(n.nspname), CASE WHEN has_schema_privilege('public', n.oid, 'CREATE') THEN 'PUBLIC' ELSE string_agg(quote_ident(r.rolname), ', ' ORDER BY r.rolname) END
  FROM unnest(current_schemas(false)) s(name)
  JOIN pg_namespace n ON n.nspname = s.name AND n.nspname NOT IN ('pg_catalog', 'belfry')
  JOIN pg_roles r ON r.rolcanlogin AND NOT r.rolsuper AND r.rolname <> current_user AND has_schema_privilege(r.oid, n.oid, 'CREATE')
 WHERE r.oid NOT IN (SELECT d.datdba FROM pg_database d WHERE d.datname = current_database())
   AND r.oid NOT IN (SELECT b.nspowner FROM pg_namespace b WHERE b.nspname = 'belfry')
 GROUP BY n.oid, n.nspname
 ORDER BY 1;

-- name: DoctorPrivileges :many
-- Privileges that the connected user lacks, of the parallel arrays @privileges, @relations and @columns
-- ('a, b', or empty for all). A relation that begins with FUNCTION is a function. With @reads also SELECT
-- on every relation of the schema. One row per relation, with the privileges in the syntax of GRANT.
SELECT n.relation, array_agg(n.privilege || coalesce(' (' || nullif(n.columns, '') || ')', '') ORDER BY n.ord) AS missing
  FROM (SELECT relation, privilege, columns, ord
          FROM unnest(@relations::text[], @privileges::text[], @columns::text[]) WITH ORDINALITY u (relation, privilege, columns, ord)
        UNION ALL
        SELECT 'belfry.' || c.relname, 'SELECT', '', 0
          FROM pg_class c
         WHERE @reads AND c.relnamespace = to_regnamespace('belfry') AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition) n
 WHERE CASE WHEN n.relation LIKE 'FUNCTION %' THEN to_regprocedure(substr(n.relation, 10)) IS NULL ELSE to_regclass(n.relation) IS NULL END
    OR NOT CASE WHEN n.relation LIKE 'FUNCTION %' THEN has_function_privilege(substr(n.relation, 10), n.privilege)
                WHEN n.columns <> '' THEN (SELECT bool_and(has_column_privilege(n.relation, c, n.privilege)) FROM unnest(string_to_array(n.columns, ', ')) c)
                ELSE has_table_privilege(n.relation, n.privilege) END
 GROUP BY n.relation
 ORDER BY n.relation;

-- name: DoctorWrites :one
-- Whether the connected user may change any of belfry's tables. Always one row.
SELECT EXISTS (SELECT FROM pg_class c
                WHERE c.relnamespace = to_regnamespace('belfry') AND c.relkind IN ('r', 'p') AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE'));

-- name: DoctorStale :many
-- RUNNING jobs whose heartbeat is older than @stale_after or a minute ahead, longest first: any
-- runner that serves their lane resumes them. No row is the healthy case. At most
-- one row a lane, by jobs_one_running_per_lane.
SELECT id, lane, runner, now() - heartbeat_at AS age
  FROM belfry.jobs
 WHERE status = 'RUNNING' AND heartbeat_at NOT BETWEEN now() - @stale_after::interval AND now() + interval '1 minute'
 ORDER BY heartbeat_at;

-- name: DoctorOverdue :one
-- Due jobs in lanes that are not paused: their count, the longest wait, and their types that are not in
-- @types. Reads jobs_waiting_idx. Always one row.
SELECT count(*)                                                    AS jobs,
       coalesce(now() - min(schedule_at), '0')                     AS longest,
       coalesce(array_agg(DISTINCT type) FILTER (WHERE type <> ALL (@types::text[])), '{}') AS unknown_types
  FROM belfry.jobs j
 WHERE status = 'PENDING' AND NOT awaits_approval AND schedule_at <= now()
   AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL);

-- name: DoctorStatistics :one
-- Whether this role may read the statistics of other users' sessions. Always one row.
SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE');

-- name: DoctorUnsent :many
-- Jobs whose first due message is due for longer than @longer_than, ten at most, and
-- activities as job 0. reason is the reason of its wait. Relies on messages_due_idx,
-- messages_pkey and messages_activity_idx. No row is the healthy case.
(SELECT j.job_id, now() - m.next_attempt_at AS for, coalesce(m.reason, '') AS reason
   FROM belfry.sendable_jobs j
  CROSS JOIN LATERAL belfry.first_waiting(j.job_id) m
  WHERE m.next_attempt_at < now() - @longer_than::interval
  ORDER BY m.next_attempt_at LIMIT 10)
UNION ALL
(SELECT 0, now() - next_attempt_at, coalesce(reason, '')
   FROM belfry.message_rows
  WHERE status = 'PENDING' AND job_id < 0 AND next_attempt_at < now() - @longer_than::interval
  ORDER BY next_attempt_at LIMIT 1);

-- name: DoctorQueued :many
-- The queues of a carrier with messages that are QUEUED by a push older than @seconds, and their number, up to
-- @most (belfry.queued_in). No row is the healthy case.
SELECT q.name, c.messages AS n
  FROM (VALUES ('activities'), ('bulk')) q(name)
 CROSS JOIN LATERAL belfry.queued_in(q.name, (SELECT min(p.number) FROM belfry.pushes p
                                               WHERE p.queue = q.name AND p.made_at > clock_timestamp() - make_interval(secs => @seconds)
                                                 AND p.made_at < clock_timestamp() + interval '1 minute'), @most) c
 WHERE c.messages > 0
 ORDER BY q.name;

-- name: DoctorNames :many
-- Names that were refused to another process within ten minutes, 20 at most.
SELECT n.kind, n.name, n.host || ':' || n.pid AS holder, n.rival
  FROM belfry.names n
 WHERE n.rival_at > clock_timestamp() - interval '10 minutes'
 ORDER BY n.kind, n.name
 LIMIT 20;

-- name: DoctorNotifications :one
-- Whether belfry notifies, and the used part of the server's notification queue, from 0 to 1. Always one row.
SELECT belfry.rings(), pg_notification_queue_usage();

-- name: DoctorPartitions :one
-- The partition of belfry.notifications that jobs and activities write into, and whether it and the next one exist. The number
-- of the last activity is visible to roles with a right on the sequence. Always one row.
SELECT p.part, num_nulls(to_regclass('belfry.notifications_' || p.part), to_regclass('belfry.notifications_' || p.part + 1)) = 0
  FROM (SELECT coalesce(belfry.notifications_part(greatest(max(j.arrival), (SELECT s.last_value FROM pg_sequences s WHERE (s.schemaname, s.sequencename) = ('belfry', 'arrivals_seq')))), 0) AS part
          FROM belfry.jobs j) p;
