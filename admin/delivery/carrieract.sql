-- Operators' acts on the transport: push QUEUED messages again, or take them back.

-- name: QueueStates :many
-- The two queues of a carrier in the database, also without a carrier (queues_pkey,
-- belfry.queued_in). leads_until is NULL while no relay pushes; queued is
-- counted up to @most, NULL means all; oldest is the time since the oldest message became
-- QUEUED, NULL without one.
SELECT n.name, coalesce(q.transport, '') AS transport, coalesce(q.dispatcher, '') AS dispatcher,
       CASE WHEN q.leads_until > clock_timestamp() THEN q.leads_until END AS leads_until,
       coalesce(q.epoch::text, '') AS epoch, q.epoch_at, coalesce(q.last_push, 0) AS last_push,
       c.messages AS queued, clock_timestamp() - c.since AS oldest
  FROM (VALUES ('activities'), ('bulk')) n(name)
 CROSS JOIN LATERAL belfry.queued_in(n.name, NULL, @most::bigint) c
  LEFT JOIN belfry.queues q ON q.name = n.name
 ORDER BY n.name;

-- name: QueuesRebuild :many
-- Begins a new epoch of both queues. The dispatcher then detects that the carrier has another
-- epoch, and repeats the pushes of the QUEUED messages. No row if a carrier was never used.
UPDATE belfry.queues q SET epoch = gen_random_uuid(), epoch_at = clock_timestamp() RETURNING q.name;

-- name: TransportRecord :one
-- The event of a rebuild, of a drain, in the transaction of its first step, or of an
-- emptied carrier. Its name is the transport; @transport '' means the transports of the last
-- pushes (queues_pkey). @messages NULL omits the number of messages.
INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
VALUES ('transport', coalesce(nullif(@transport, ''), (SELECT string_agg(DISTINCT q.transport, ', ') FROM belfry.queues q WHERE q.transport <> ''), ''),
        @kind, coalesce(nullif(@actor, ''), session_user), @reason,
        jsonb_build_object('session_user', session_user) || jsonb_strip_nulls(jsonb_build_object('messages', @messages::bigint)))
RETURNING id;

-- name: TransportRecordMore :exec
-- Adds a later step of a drain to its event, in the step's transaction. Zero rows: retention
-- has deleted it.
UPDATE belfry.events e
   SET detail = jsonb_set(e.detail, '{messages}', to_jsonb((e.detail ->> 'messages')::bigint + @messages::bigint))
 WHERE e.id = @id;
