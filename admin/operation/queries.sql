-- name: RequestExpire :exec
-- Deletes the request of @who and @key, and up to 100 others, if they are more than 24 hours old
-- (requests_pkey, requests_at_idx).
DELETE FROM belfry.requests
 WHERE (who, key) IN (SELECT who, key FROM (SELECT who, key FROM belfry.requests
                        WHERE at < now() - interval '24 hours' ORDER BY at LIMIT 100 FOR UPDATE SKIP LOCKED) old
                       UNION ALL SELECT @who, @key)
   AND at < now() - interval '24 hours';

-- name: RequestBegin :exec
-- Claims the key of a request for @seconds (requests_pkey). Zero rows: the key is taken.
INSERT INTO belfry.requests (who, key, fingerprint, ends_at)
VALUES (@who, @key, @fingerprint, clock_timestamp() + make_interval(secs => @seconds::float8))
ON CONFLICT ON CONSTRAINT requests_pkey DO NOTHING;

-- name: RequestRead :one
-- The state of the request with a key (requests_pkey). No row: the key was given back.
SELECT fingerprint = @fingerprint AS same, coalesce(status, 0) AS status, answer, ends_at < clock_timestamp() AS over
  FROM belfry.requests
 WHERE who = @who AND key = @key;

-- name: RequestAnswer :exec
-- Stores the response to a request.
UPDATE belfry.requests SET status = @status, answer = @answer WHERE who = @who AND key = @key AND status IS NULL;

-- name: RequestGiveBack :exec
-- Deletes a request that had no effect, so that its key is free.
DELETE FROM belfry.requests WHERE who = @who AND key = @key AND status IS NULL;

-- name: EventNewest :one
-- The time of the newest event of @kind of an object, and its number of jobs (events_subject_idx). @lifted
-- restricts it to events that set this field to null; '' means any event. NULL: no such event since an earlier
-- object of that name was removed. No row: the object has no such event.
SELECT CASE WHEN e.kind = @kind THEN e.at END, coalesce((e.detail ->> 'jobs')::bigint, 0)
  FROM belfry.events e
 WHERE e.subject = @subject AND e.name = @name
   AND (e.kind = @kind AND (@lifted::text = '' OR e.detail -> 'before' ? @lifted AND e.detail -> 'after' ->> @lifted IS NULL) OR e.kind = 'removed')
 ORDER BY e.id DESC
 LIMIT 1;

-- name: JobsToRadius :many
-- The jobs among @ids whose audience is a radius, or was one before a correction (jobs_pkey, job_revisions_pkey).
SELECT j.id FROM belfry.jobs j
 WHERE j.id = ANY (@ids)
   AND (j.audience ->> 'kind' = 'radius'
        OR EXISTS (SELECT FROM belfry.job_revisions r WHERE r.job_id = j.id AND r.audience ->> 'kind' = 'radius'));

-- name: StatusRead :one
-- The halt, the number of running jobs (jobs_one_running_per_lane), the paused lanes and senders, at
-- most @limit of each, and the position of the last events (job_events_pkey, events_pkey). Always one
-- row.
SELECT i.halted_at, coalesce(i.halted_by, '') AS halted_by, coalesce(i.halt_reason, '') AS halt_reason,
       (SELECT count(*) FROM belfry.jobs j WHERE j.status = 'RUNNING') AS running,
       coalesce((SELECT max(e.id) FROM belfry.job_events e), 0)::text || '.' || coalesce((SELECT max(e.id) FROM belfry.events e), 0) AS place,
       ARRAY(SELECT l.name FROM belfry.lanes l WHERE l.paused_at IS NOT NULL ORDER BY l.name LIMIT @limit) AS paused_lanes,
       ARRAY(SELECT s.name FROM belfry.senders s WHERE s.paused_at IS NOT NULL ORDER BY s.name LIMIT @limit) AS paused_senders
  FROM (SELECT true) o(one) LEFT JOIN belfry.installation i ON i.one = o.one;
