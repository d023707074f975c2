-- name: RequestExpire :exec
-- Deletes the request of @who and @key, and up to 100 others, if they are more than 24 hours old
-- (requests_pkey, requests_at_idx).
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
