-- The tokens of the HTTP API, and what joins tables of several packages. What else operations
-- read and write is in the packages that own the tables.

-- name: TokenCreate :one
-- Makes a token, whose secret has @sha256. A name that is taken violates tokens_name_key.
-- belfry.act says who, for the event.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
INSERT INTO belfry.tokens (name, role, sha256, created_by, expires_at)
SELECT @name, @role, @sha256, belfry.actor(), @expires_at FROM act
RETURNING name, role, created_at, created_by, expires_at, revoked_at, last_used_at;

-- name: TokenList :many
-- Every token, by name (tokens_name_key).
SELECT name, role, created_at, created_by, expires_at, revoked_at, last_used_at FROM belfry.tokens ORDER BY name;

-- name: TokenRevoke :one
-- Ends a token; one that is revoked already stays as it is. No row: there is none of that
-- name.
WITH act AS MATERIALIZED (SELECT belfry.act(@actor, @reason))
UPDATE belfry.tokens t SET revoked_at = coalesce(t.revoked_at, clock_timestamp()) FROM act
 WHERE t.name = @name
RETURNING t.name, t.role, t.created_at, t.created_by, t.expires_at, t.revoked_at, t.last_used_at;

-- name: TokenFind :one
-- The token of a secret, by its hash (tokens_sha256_key), if it is good now. unmarked: its
-- last_used_at is a minute old.
SELECT id, name, role, coalesce(last_used_at < now() - interval '1 minute', true) AS unmarked
  FROM belfry.tokens
 WHERE sha256 = @sha256 AND revoked_at IS NULL AND expires_at > now();

-- name: TokenUse :exec
-- Marks that a token is used. Zero rows: another request does so.
UPDATE belfry.tokens SET last_used_at = now()
 WHERE id = (SELECT t.id FROM belfry.tokens t
              WHERE t.id = @id AND coalesce(t.last_used_at < now() - interval '1 minute', true)
                FOR NO KEY UPDATE SKIP LOCKED);

-- name: RequestForget :exec
-- Deletes the request of @who and @key if it is over 24 hours old, and some others that are
-- (requests_pkey, requests_at_idx). Zero rows: there is none.
DELETE FROM belfry.requests
 WHERE (who, key) IN (SELECT who, key FROM (SELECT who, key FROM belfry.requests
                        WHERE at < now() - interval '24 hours' ORDER BY at LIMIT 100 FOR UPDATE SKIP LOCKED) old
                       UNION ALL SELECT @who, @key)
   AND at < now() - interval '24 hours';

-- name: RequestBegin :exec
-- Makes a request this one's to do, for @seconds. Zero rows: there is one of that key
-- (requests_pkey).
INSERT INTO belfry.requests (who, key, fingerprint, ends_at)
VALUES (@who, @key, @fingerprint, clock_timestamp() + make_interval(secs => @seconds::float8))
ON CONFLICT ON CONSTRAINT requests_pkey DO NOTHING;

-- name: RequestRead :one
-- What came of the request of a key (requests_pkey). No row: it was given back.
SELECT fingerprint = @fingerprint AS same, coalesce(status, 0) AS status, answer, ends_at < clock_timestamp() AS over
  FROM belfry.requests
 WHERE who = @who AND key = @key;

-- name: RequestAnswer :exec
-- Keeps what a request was answered.
UPDATE belfry.requests SET status = @status, answer = @answer WHERE who = @who AND key = @key AND status IS NULL;

-- name: RequestGiveBack :exec
-- Forgets a request that did nothing: its key is free.
DELETE FROM belfry.requests WHERE who = @who AND key = @key AND status IS NULL;

-- name: StatusRead :one
-- Whether belfry is halted, how many jobs run (jobs_one_running_per_lane), and which lanes and
-- senders are paused, the first @limit of each; and where the events end (job_events_pkey,
-- events_pkey). Always one row.
SELECT i.halted_at, coalesce(i.halted_by, '') AS halted_by, coalesce(i.halt_reason, '') AS halt_reason,
       (SELECT count(*) FROM belfry.jobs j WHERE j.status = 'RUNNING') AS running,
       coalesce((SELECT max(e.id) FROM belfry.job_events e), 0)::text || '.' || coalesce((SELECT max(e.id) FROM belfry.events e), 0) AS place,
       ARRAY(SELECT l.name FROM belfry.lanes l WHERE l.paused_at IS NOT NULL ORDER BY l.name LIMIT @limit) AS paused_lanes,
       ARRAY(SELECT s.name FROM belfry.senders s WHERE s.paused_at IS NOT NULL ORDER BY s.name LIMIT @limit) AS paused_senders
  FROM (SELECT true) o(one) LEFT JOIN belfry.installation i ON i.one = o.one;

-- name: HealthRead :one
-- How the server is, from its statistics, and the relays that beat within @seconds by what they
-- get their messages from. NULL: the role may not see it, or there is nothing. Always one row.
SELECT clock_timestamp() AS at, current_setting('server_version') AS server, pg_is_in_recovery() AS standby,
       (SELECT sum(d.numbackends)::integer FROM pg_stat_database d) AS connections, current_setting('max_connections')::integer AS max_connections,
       CASE WHEN pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
            THEN (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(a.xact_start)), 0)::double precision FROM pg_stat_activity a WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()) END AS oldest_transaction,
       (SELECT extract(epoch FROM max(r.replay_lag))::double precision FROM pg_stat_replication r) AS replay_lag,
       coalesce((SELECT jsonb_object_agg(k.transport, k.n) FROM (SELECT r.transport, count(*) AS n FROM belfry.relays r
                  WHERE r.heartbeat_at > clock_timestamp() - make_interval(secs => @seconds) GROUP BY r.transport) k), '{}') AS relays;

-- name: SegmentUsers :many
-- What is for the segment @segment, and what becomes of it without, @limit at most: jobs that run
-- or are among the @looks oldest that wait (jobs_status_idx), and schedules. No row: nothing is.
(SELECT format('job %s (%s)', j.id, j.type), 'finds no further members, and ends early'
   FROM (SELECT r.* FROM (SELECT r.id, r.type, r.audience FROM belfry.jobs r WHERE r.status = 'RUNNING' ORDER BY -r.id DESC LIMIT @looks) r
          UNION ALL
         SELECT p.* FROM (SELECT p.id, p.type, p.audience FROM belfry.jobs p WHERE p.status = 'PENDING' ORDER BY -p.id DESC LIMIT @looks) p) j
  WHERE j.audience ->> 'segment' = @segment
  ORDER BY j.id LIMIT @limit)
 UNION ALL
(SELECT 'schedule ' || s.name, 'its jobs are refused from then on'
   FROM belfry.schedules s
  WHERE s.template #>> '{audience,segment}' = @segment
  ORDER BY s.name LIMIT @limit);

-- name: JobsUnderWay :many
-- The jobs that run or are being delivered, oldest first, @limit at most. Relies on
-- jobs_one_running_per_lane, jobs_undelivered_idx and job_deliveries_pkey. No row: none.
SELECT id FROM belfry.jobs WHERE status = 'RUNNING'
 UNION
SELECT j.id
  FROM belfry.jobs j
  JOIN belfry.job_progress p ON p.job_id = j.id
 WHERE j.delivered_at IS NULL AND j.started_at IS NOT NULL AND j.status NOT IN ('ABORTED', 'PENDING') AND p.waiting > 0
 ORDER BY id
 LIMIT @limit;

-- name: EventNewest :one
-- When the newest event of @kind of a thing was, of those that set its member @lifted to null, ''
-- any, and of how many jobs it was (events_subject_idx). NULL: there was none since another thing
-- of that name was removed. No row: there was none at all.
SELECT CASE WHEN e.kind = @kind THEN e.at END, coalesce((e.detail ->> 'jobs')::bigint, 0)
  FROM belfry.events e
 WHERE e.subject = @subject AND e.name = @name
   AND (e.kind = @kind AND (@lifted::text = '' OR e.detail -> 'before' ? @lifted AND e.detail -> 'after' ->> @lifted IS NULL) OR e.kind = 'removed')
 ORDER BY e.id DESC
 LIMIT 1;

-- name: JobsToRadius :many
-- Of the jobs with @ids, those whose audience is a radius. Relies on jobs_pkey.
SELECT id FROM belfry.jobs WHERE id = ANY (@ids) AND audience ->> 'kind' = 'radius';
