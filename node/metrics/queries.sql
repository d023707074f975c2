-- The statements of the Collector. Each returns the values of some metrics: the metric, the
-- values of its labels in order, and its value, which is NULL without the privilege. The cost
-- of each is bounded at every size of the tables: counts stop at @most, and the oldest row is
-- the first row of an index.

-- name: CollectJobs :many
-- The number of jobs by status, of jobs that ended within an hour, and of due jobs in open
-- lanes with the age of the oldest; the oldest heartbeat of a run; and the longest waits of
-- the first @most jobs that wait for approval. Reads the head of each lane, type and priority
-- in jobs_waiting_idx, as JobsLook does, and the due jobs behind it; all of
-- jobs_one_running_per_lane; the end of jobs_unpruned_idx; and jobs_approval_idx.
WITH RECURSIVE kinds (lane, type) AS (
    (SELECT j.lane, j.type FROM belfry.jobs j WHERE j.status = 'PENDING' AND NOT j.awaits_approval ORDER BY j.lane, j.type LIMIT 1)
     UNION ALL
    SELECT n.lane, n.type
      FROM kinds k
     CROSS JOIN LATERAL (SELECT j.lane, j.type FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND (j.lane, j.type) > (k.lane, k.type)
                          ORDER BY j.lane, j.type LIMIT 1) n
), heads (lane, type, priority, schedule_at) AS (
    SELECT k.lane, k.type, h.priority, h.schedule_at
      FROM kinds k
     CROSS JOIN LATERAL (SELECT j.priority, j.schedule_at FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = k.lane AND j.type = k.type
                          ORDER BY j.priority DESC, j.schedule_at LIMIT 1) h
     UNION ALL
    SELECT p.lane, p.type, h.priority, h.schedule_at
      FROM heads p
     CROSS JOIN LATERAL (SELECT j.priority, j.schedule_at FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = p.lane AND j.type = p.type AND j.priority < p.priority
                          ORDER BY j.priority DESC, j.schedule_at LIMIT 1) h
), due AS MATERIALIZED (
    SELECT h.lane, h.type, h.priority, h.schedule_at
      FROM heads h
     WHERE h.schedule_at <= statement_timestamp()
       AND (SELECT l.paused_at FROM belfry.lanes l WHERE l.name = h.lane) IS NULL
), behind AS (
    SELECT 1
      FROM due d
     CROSS JOIN LATERAL (SELECT 1 FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = d.lane AND j.type = d.type AND j.priority = d.priority
                            AND j.schedule_at <= statement_timestamp()
                          ORDER BY j.schedule_at LIMIT @most) j
     LIMIT @most
), running AS MATERIALIZED (
    SELECT j.heartbeat_at FROM belfry.jobs j WHERE j.status = 'RUNNING'
), ended AS MATERIALIZED (
    SELECT j.status
      FROM belfry.jobs j
     WHERE j.finished_at IS NOT NULL AND j.pruned_at IS NULL AND j.finished_at > statement_timestamp() - interval '1 hour'
     ORDER BY j.finished_at DESC, j.id DESC
     LIMIT @most
), awaiting AS MATERIALIZED (
    SELECT coalesce(j.unapproved_at, j.created_at) AS since, j.schedule_at
      FROM belfry.jobs j
     WHERE j.awaits_approval
     ORDER BY j.id
     LIMIT @most
)
SELECT 'belfry_jobs' AS metric, '{PENDING}'::text[] AS labels,
       (SELECT count(*) FROM (SELECT 1 FROM belfry.jobs j WHERE j.status = 'PENDING' AND NOT j.awaits_approval
                               ORDER BY j.lane, j.type, j.priority DESC, j.schedule_at, j.id LIMIT @most) p)::double precision AS value
 UNION ALL
SELECT 'belfry_jobs', '{RUNNING}', (SELECT count(*) FROM running)
 UNION ALL
SELECT 'belfry_jobs_ended', ARRAY[s.status], (SELECT count(*) FROM ended e WHERE e.status = s.status)
  FROM unnest('{PROCESSED,ABORTED,FAILED,EXPIRED}'::text[]) s(status)
 UNION ALL
SELECT 'belfry_jobs_due', '{}', (SELECT count(*) FROM behind)
 UNION ALL
SELECT 'belfry_oldest_due_job_age_seconds', '{}', coalesce((SELECT extract(epoch FROM statement_timestamp() - min(d.schedule_at)) FROM due d), 0)
 UNION ALL
SELECT 'belfry_oldest_heartbeat_age_seconds', '{}', greatest(coalesce((SELECT extract(epoch FROM clock_timestamp() - min(r.heartbeat_at)) FROM running r), 0), 0)
 UNION ALL
SELECT 'belfry_jobs_awaiting_approval', '{}', (SELECT count(*) FROM awaiting)
 UNION ALL
SELECT 'belfry_oldest_awaiting_approval_age_seconds', '{}', greatest(coalesce((SELECT extract(epoch FROM clock_timestamp() - min(a.since)) FROM awaiting a), 0), 0)
 UNION ALL
SELECT 'belfry_oldest_due_awaiting_approval_age_seconds', '{}',
       greatest(coalesce((SELECT extract(epoch FROM clock_timestamp() - min(greatest(a.since, a.schedule_at))) FROM awaiting a), 0), 0);

-- name: CollectMessages :many
-- Messages that are not final, from the progress of the newest @most jobs that are not
-- delivered, by state and by the first medium of the job's route; without relays no job is
-- ever delivered. And the age of the oldest due message of these jobs and of activities.
-- Relies on jobs_undelivered_idx, job_deliveries_pkey, messages_due_idx, messages_pkey and
-- messages_activity_idx. No message is counted.
WITH undelivered AS MATERIALIZED (
    SELECT j.id, coalesce(j.route[1], '') AS medium,
           CASE WHEN j.status = 'ABORTED' OR j.awaits_approval OR (SELECT l.paused_at FROM belfry.lanes l WHERE l.name = j.lane) IS NOT NULL THEN 'held'
                WHEN j.deliver_at > statement_timestamp() THEN 'later'
                ELSE 'open' END AS state
      FROM belfry.jobs j
     WHERE j.delivered_at IS NULL AND j.started_at IS NOT NULL
     ORDER BY j.id DESC
     LIMIT @most
), waiting AS (
    SELECT u.state, u.medium, sum(d.waiting) AS messages
      FROM undelivered u
     CROSS JOIN LATERAL (SELECT sum(r.written - r.sent - r.dead - r.cancelled) AS waiting
                           FROM belfry.job_deliveries r WHERE r.job_id = u.id) d
     WHERE d.waiting > 0
     GROUP BY u.state, u.medium
), oldest AS (
    SELECT min(m.next_attempt_at) AS due_at
      FROM undelivered u
     CROSS JOIN LATERAL belfry.first_waiting(u.id) m
     WHERE u.state = 'open' AND m.next_attempt_at <= statement_timestamp()
), activity AS (
    SELECT m.next_attempt_at AS due_at FROM belfry.message_rows m
     WHERE m.job_id < 0 AND m.status = 'PENDING'
     ORDER BY m.next_attempt_at, m.job_id, m.channel_id LIMIT 1
)
SELECT 'belfry_messages_waiting' AS metric, ARRAY[w.state, w.medium] AS labels, w.messages::double precision AS value FROM waiting w
 UNION ALL
SELECT 'belfry_oldest_due_message_age_seconds', '{bulk}',
       coalesce((SELECT extract(epoch FROM statement_timestamp() - o.due_at) FROM oldest o), 0)
 UNION ALL
SELECT 'belfry_oldest_due_message_age_seconds', '{activities}',
       coalesce((SELECT greatest(extract(epoch FROM statement_timestamp() - a.due_at), 0) FROM activity a), 0);

-- name: CollectQueues :many
-- The number of QUEUED messages in each of a carrier's queues, up to @most, and the age of the
-- oldest (belfry.queued_in). No row if a carrier was never used.
SELECT v.metric, ARRAY[q.name] AS labels, v.value
  FROM belfry.queues q
 CROSS JOIN LATERAL belfry.queued_in(q.name, NULL, @most) c
 CROSS JOIN LATERAL (VALUES ('belfry_queued_messages', c.messages::double precision),
                            ('belfry_oldest_queued_age_seconds', coalesce(extract(epoch FROM clock_timestamp() - c.since), 0)::double precision)) v(metric, value);

-- name: CollectControl :many
-- The state of the halt, the number of paused lanes and senders and of relays with a heartbeat
-- of the last 10 seconds, and the time since the oldest lease expired. Relies on
-- leases_expiry_idx; the other tables have one row per lane, sender and relay.
SELECT 'belfry_lanes_paused' AS metric, '{}'::text[] AS labels, (SELECT count(*) FROM belfry.lanes l WHERE l.paused_at IS NOT NULL)::double precision AS value
 UNION ALL
SELECT 'belfry_halted', '{}', (SELECT count(*) FROM belfry.installation i WHERE i.halted_at IS NOT NULL)
 UNION ALL
SELECT 'belfry_senders_paused', '{}', (SELECT count(*) FROM belfry.senders s WHERE s.paused_at IS NOT NULL)
 UNION ALL
SELECT 'belfry_relays_alive', '{}', (SELECT count(*) FROM belfry.relays r WHERE r.heartbeat_at BETWEEN clock_timestamp() - interval '10 seconds' AND clock_timestamp() + interval '1 minute')
 UNION ALL
SELECT 'belfry_oldest_expired_lease_age_seconds', '{}',
       coalesce((SELECT greatest(extract(epoch FROM clock_timestamp() - l.expires_at), 0) FROM belfry.leases l ORDER BY l.expires_at LIMIT 1), 0);

-- name: CollectServer :many
-- The obstacles to vacuum: the age in transactions of the oldest snapshot of sessions,
-- prepared transactions and replication slots, and the age of the oldest transaction. NULL if
-- this role may not read the statistics of other sessions. Always two rows.
SELECT v.metric, '{}'::text[] AS labels,
       CASE WHEN pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') THEN v.value END AS value
  FROM (SELECT 'belfry_oldest_xmin_age_transactions' AS metric,
               coalesce(greatest((SELECT max(age(a.backend_xmin)) FROM pg_stat_activity a),
                                 (SELECT max(age(p.transaction)) FROM pg_prepared_xacts p),
                                 (SELECT max(age(s.xmin)) FROM pg_replication_slots s)), 0)::double precision AS value
         UNION ALL
        SELECT 'belfry_oldest_transaction_age_seconds',
               coalesce((SELECT extract(epoch FROM clock_timestamp() - min(a.xact_start)) FROM pg_stat_activity a
                          WHERE a.backend_type = 'client backend'), 0)) v;
